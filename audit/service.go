package audit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// Config configures a [Service]. With the zero Config, entries can be listed but are not delivered.
type Config struct {
	// Notify receives each pending audit entry. It is called again until it returns nil: delivery
	// is at-least-once, and repeats have the same ID. [Service.Run] makes one call at a time, in
	// one of the processes that share a store. Entries stored while no process was running are
	// delivered later. Entries of one target are delivered in the order of its changes. The context
	// of a call ends after 10 seconds.
	//
	// Accounts are served in turn, for 100 ms or for one call if that takes longer. After an error
	// or a panic the entries of that target wait for a second, then for twice as long each time, up
	// to 10 minutes. If several targets of an account fail, the whole account waits. Other accounts
	// are not affected. A call that does not return holds up all entries of this process, but
	// nothing else.
	//
	// An entry is pending only if the service that stored it had a Notify, so set Notify in all
	// processes that share a store. Default: no delivery.
	Notify func(ctx context.Context, entry Entry) error

	// Scan is called by Run at the start and every hour, before entries are delivered. It adds
	// entries that become due as time passes. Default: none.
	Scan func(ctx context.Context) error

	// Logger logs failures of Notify and of the store. Default: slog.Default().
	Logger *slog.Logger
}

// A Service lists audit entries and delivers them to the host. It is safe for concurrent use.
type Service struct {
	store   Store
	config  Config
	holder  string // identifies this service as a lease holder
	running atomic.Bool
}

// New returns a Service that reads its entries from store. The caller closes the store after Run
// has returned. New starts nothing.
func New(store Store, config Config) (*Service, error) {
	if store == nil {
		return nil, errors.New("audit entries: nil Store")
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	return &Service{store: store, config: config, holder: rand.Text()}, nil
}

// List returns a page of the account's entries, pending or not, newest first. webhooks.Retention
// sets how long entries are kept. The page is empty for an unknown account.
func (s *Service) List(ctx context.Context, account string, query Query) (Page, error) {
	if query.Limit < 1 {
		return Page{}, errors.New("audit entries: Query.Limit must be at least 1")
	}
	page, err := s.store.ListAuditEntries(ctx, account, query)
	if err != nil {
		return Page{}, fmt.Errorf("list audit entries: %w", err)
	}
	return page, nil
}

// Run delivers pending entries to [Config.Notify] until ctx is done. Then it waits up to a second
// for the current call, and returns. Without Notify, or if another Run of this Service is active,
// it returns at once.
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
