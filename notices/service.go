package notices

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// Config configures a [Service]. The zero Config works: the notices can be read.
type Config struct {
	// Notify is told each notice that is pending, until it returns nil: at least once, so
	// that it must cope with repeats, which have the same ID. It is called from
	// [Service.Run], one call at a time, in one of the processes that share a store at a
	// time, also of what happened while no process was there. Of one target the notices
	// come in the order of its changes. A call has 10 seconds, after which its context ends.
	//
	// Accounts take turns of 100 ms, or of one call if that takes longer. After an error, or a
	// panic, the notices of that target wait for a second, then for twice as long each time, up
	// to 10 minutes; if several targets of an account fail, the whole account does. Those of
	// others go on. A call that does not return holds up all notices of this process, and
	// nothing else.
	//
	// Which notices are pending was decided when they were stored: those of services whose
	// own Notify was set. So all processes that share a store need it. Default: nothing is
	// told.
	Notify func(ctx context.Context, notice Notice) error

	// Scan is called by Run at first and every hour, before the notices are told, to add
	// notices of what is a matter of time. Default: none.
	Scan func(ctx context.Context) error

	// Logger is told what Notify and the store fail at. Default: slog.Default().
	Logger *slog.Logger
}

// A Service reads what happened, and has the host told. It is safe for concurrent use.
type Service struct {
	store   Store
	config  Config
	holder  string // names this service to the lease
	running atomic.Bool
}

// New returns a Service on the given store, which stays the caller's to close, after Run has
// returned. It starts nothing.
func New(store Store, config Config) (*Service, error) {
	if store == nil {
		return nil, errors.New("notices: nil Store")
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	return &Service{store: store, config: config, holder: rand.Text()}, nil
}

// List returns a part of what happened in the account, newest first: what the host was told
// and what it was not told yet, for as long as webhooks.Retention keeps it. An account of
// which nothing is known has an empty page.
func (s *Service) List(ctx context.Context, account string, query Query) (Page, error) {
	if query.Limit < 1 {
		return Page{}, errors.New("notices: Query.Limit must be at least 1")
	}
	page, err := s.store.ListNotices(ctx, account, query)
	if err != nil {
		return Page{}, fmt.Errorf("list notices: %w", err)
	}
	return page, nil
}

// Run tells [Config.Notify] what is pending until ctx is done. Then it waits for the call
// under way, for a second at most, and returns. Without Notify it returns at once, and so
// does a second Run at a time.
func (s *Service) Run(ctx context.Context) {
	if s.config.Notify == nil || !s.running.CompareAndSwap(false, true) {
		return
	}
	defer s.running.Store(false)
	n := &notifier{Service: s, failing: make(map[string]*failures)}
	for ctx.Err() == nil {
		wait := n.round(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	n.end(ctx)
}
