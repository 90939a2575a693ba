package bolt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/storageapi/storageapi/internal/boltoption"
	"github.com/storageapi/storageapi/internal/clock"
	"github.com/storageapi/storageapi/internal/cursor"
	"github.com/storageapi/storageapi/internal/observing"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt/internal/alertcache"
	"github.com/storageapi/storageapi/store/bolt/internal/auditlog"
	"github.com/storageapi/storageapi/store/bolt/internal/eventlog"
	"github.com/storageapi/storageapi/store/bolt/internal/feed"
	"github.com/storageapi/storageapi/store/bolt/internal/groupcommit"
	"github.com/storageapi/storageapi/store/bolt/internal/parking"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/requests"
	"github.com/storageapi/storageapi/store/driver"
)

// An engine stores everything in one bbolt file.
type engine struct {
	db       *bbolt.DB
	file     *os.File // the open file of db; Backup reads it
	options  boltoption.Options
	dataKey  *signing.DataKey // nil if secrets are stored in plain text
	observer *observer        // nil if there is no observer
	writer   *groupcommit.Writer[*batch]
	alerts   *alertcache.Cache

	feed       feed.Feed
	delivering chan struct{} // semaphore of capacity 1, held by the running Deliver
	closing    chan struct{} // closed by Close
	closeOnce  sync.Once

	log *eventlog.Log

	// Caches of rows. The documentation of package mirror has the rules for their use.
	keyRows     *keyRows
	webhookRows *webhookRows
	keyCounts   counts
	requests    *requests.Requests

	erasing erasing
	parking *parking.Parking
	clock   clock.Clock
	marks   marker

	sweeping chan struct{}  // semaphore of capacity 1, held by the call that sweeps
	swept    eventlog.Sweep // the current sweep; only the holder of sweeping may use it

	auditLease auditlog.Lease

	cursors cursor.Key // encrypts the delivery numbers in cursors

	lastRecovery []byte // the webhook whose recovery advanced last; only write transactions may use it
}

var (
	_ store.Store       = (*engine)(nil)
	_ driver.Deliveries = (*engine)(nil)
)

// view begins a short read transaction. The caller must end it with [engine.done] or Rollback.
func (s *engine) view(ctx context.Context) (*bbolt.Tx, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	tx, err := s.db.Begin(false)
	if err != nil {
		return nil, closedError(err)
	}
	return tx, nil
}

// done ends a read transaction. If the caller panics, done turns the panic into an error. faults is
// the result of [catchFaults], which the caller calls before the first read.
func (s *engine) done(tx *bbolt.Tx, faults bool, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("read %s: panic: %v", s.db.Path(), p)
	}
	_ = tx.Rollback()
	debug.SetPanicOnFault(faults)
}

// catchFaults makes a memory fault in this goroutine panic instead of ending the process. A
// damaged page may point outside the file, which bbolt maps into memory. catchFaults returns the
// previous setting.
func catchFaults() (faults bool) { return debug.SetPanicOnFault(true) }

// closedError replaces bbolt's error for a closed file with [store.ErrClosed].
func closedError(err error) error {
	if errors.Is(err, bbolterrors.ErrDatabaseNotOpen) {
		return store.ErrClosed
	}
	return err
}

// takeTurn waits until it can send to turn, a channel of capacity 1.
func (s *engine) takeTurn(ctx context.Context, turn chan struct{}) error {
	tx, err := s.view(ctx) // fails if ctx is done or the store is closed
	if err != nil {
		return err
	}
	_ = tx.Rollback()
	select {
	case turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closing:
		return store.ErrClosed
	}
}

// decodeWebhook decodes a row of the bucket of webhooks.
func (s *engine) decodeWebhook(account, id string, value []byte) (driver.Webhook, error) {
	return record.DecodeWebhook(account, id, value, s.dataKey)
}

// An observer reports commits to an [observe.Observer].
type observer struct {
	report func(observe.Commit)
	queue  *observing.Queue
}

func newObserver(o observe.Observer, logger *slog.Logger) *observer {
	if o.Committed == nil {
		return nil
	}
	return &observer{o.Committed, observing.NewQueue(logger, o.Lost)}
}

func (o *observer) committed(steps int, took time.Duration, err error) {
	c := observe.Commit{Steps: steps, Duration: took, Err: err}
	o.queue.Add(func() { o.report(c) })
}
