package bolt

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/storageapi/storageapi/store/bolt/internal/eventlog"
	"github.com/storageapi/storageapi/store/bolt/internal/pagefile"
	"github.com/storageapi/storageapi/store/bolt/internal/parking"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// Now implements [driver.WebhookStore].
func (s *engine) Now(ctx context.Context) (time.Time, error) {
	tx, err := s.view(ctx) // fails if the store is closed
	if err != nil {
		return time.Time{}, err
	}
	return s.clock.Time(), tx.Rollback()
}

// Purge implements [driver.WebhookStore]. It also indexes complete runs, removes rows left by
// deleted webhooks, marks the clock, and keeps the free list and the root bucket short.
func (s *engine) Purge(ctx context.Context, purge driver.Purge) (more bool, err error) {
	if more, err = s.purgeStep(ctx, purge); err != nil {
		return more, err
	}
	parks := s.park(ctx, more)
	if !more && !parks {
		s.mergeRoot(ctx)
	}
	return more || parks, nil
}

// park parks free pages, and reports whether there may be more pages to park. It ignores errors,
// because commits also work with a longer free list.
func (s *engine) park(ctx context.Context, purging bool) (more bool) {
	if !s.parking.IsLong(purging) {
		return false
	}
	err := s.writer.RunAlone(ctx, func(b *batch) (err error) {
		more, err = b.parking.Park(purging)
		return err
	})
	return more && (err == nil || parking.DidNotFit(err))
}

// mergeRoot merges the pages of the root bucket. It uses a separate transaction, because other
// steps use cursors in small buckets. It ignores errors: a later call tries again, and commits also
// work with a split root.
func (s *engine) mergeRoot(ctx context.Context) {
	_ = s.writer.RunAlone(ctx, func(b *batch) error { return pagefile.MergeRoot(b.tx, b.MarkWritten) })
}

func (s *engine) purgeStep(ctx context.Context, purge driver.Purge) (more bool, err error) {
	purge = purge.Doubting(s.clock.Doubt())
	sweeping, err := s.sweep(ctx, purge.Limit, func(b *batch, removed int) error {
		if more = removed >= purge.Limit; more {
			return nil
		}
		rest := purge
		rest.Limit -= removed
		var err error
		more, err = s.purge(b, &rest)
		return err
	})
	return more || sweeping, err
}

// purge does the work of Purge within a transaction.
func (s *engine) purge(b *batch, purge *driver.Purge) (more bool, err error) {
	if err := b.Flush(); err != nil {
		return false, err
	}
	if indexed, err := b.log.Index(); indexed || err != nil {
		return true, err
	}
	if err := s.mark(b, markIdle); err != nil {
		return false, err
	}
	left := purge.Limit
	ended, err := b.log.Purge(purge, &left)
	if err != nil {
		return false, err
	}
	b.AfterCommit(func() { s.feed.Ended(ended) })
	if left <= 0 {
		return true, nil
	}
	for _, step := range []func() error{
		func() error { return purgeRecoveries(b, purge.Attempts, &left) },
		func() error {
			return b.DeleteBefore(schema.DedupKeys, uint64(max(purge.DedupKeys.UnixMilli(), 0)), &left)
		},
		func() error { return b.audit.Purge(purge.AuditEntries, s.clock.Ahead, &left) },
	} {
		if err := step(); err != nil {
			return false, err
		}
		if left <= 0 {
			return true, nil
		}
	}
	return false, nil
}

// A sweeper removes the pending deliveries of deleted webhooks. Readers ignore these rows, and only
// a scan of all pending deliveries finds them. So a deletion lists the webhook's ID in
// schema.Deleted, and the next sweep searches for the rows of all listed webhooks at once.
type sweeper struct {
	turn chan struct{} // semaphore of capacity 1, held by the call that sweeps

	// Progress of the current sweep. It is not stored: after a restart, the sweep begins again.
	ids    map[string]bool // webhooks to sweep; nil if no sweep is in progress
	bucket int             // eventlog.AsPublished or eventlog.Attempted
	left   eventlog.Range
}

const (
	maxSweepTime = 20 * time.Millisecond // time limit for one search
	maxSwept     = 10_000                // webhooks per sweep
	sweptAtOnce  = 1000                  // rows removed per step while a caller waits for the sweep
)

// errLeftovers is returned by a step that would create a webhook with the ID of a deleted webhook
// whose pending rows may still exist. These rows would count as deliveries of the new webhook.
var errLeftovers = errors.New("rows of a deleted webhook with this ID may still exist")

// noteDeleted lists a deleted webhook for the next sweep. It does nothing if the file has no
// pending deliveries.
func (b *batch) noteDeleted(account, id string) error {
	if b.log.NothingPending() {
		return nil
	}
	return b.Put(schema.Deleted, []byte(id), []byte(account))
}

// hasLeftovers reports whether a deleted webhook with that ID may have left rows. If so, no
// webhook may be created with that ID.
func (b *batch) hasLeftovers(id string) bool { return b.Get(schema.Deleted, []byte(id)) != nil }

// sweepAll removes all rows left by deleted webhooks.
func (s *engine) sweepAll(ctx context.Context) error {
	for more := true; more; {
		var err error
		if more, err = s.sweep(ctx, sweptAtOnce, nil); err != nil {
			return err
		}
	}
	return nil
}

// sweep removes about limit rows left by deleted webhooks, and reports whether more may remain. If
// also is not nil, sweep calls it in the same transaction, with the number of removed rows. If the
// transaction fails, the next call removes the rows.
func (s *engine) sweep(ctx context.Context, limit int, also func(b *batch, removed int) error) (more bool, err error) {
	if err := s.takeTurn(ctx, s.sweeper.turn); err != nil {
		return false, err
	}
	defer func() { <-s.sweeper.turn }()
	w := &s.sweeper
	if w.ids == nil {
		if w.ids, err = s.deletedWebhooks(ctx); err != nil {
			return false, err
		}
		w.bucket, w.left = eventlog.AsPublished, eventlog.Range{Last: math.MaxUint64}
	}
	var found []driver.DeliveryRef
	left := w.left
	if w.ids != nil {
		if found, left, err = s.findLeftovers(ctx, limit); err != nil {
			return false, err
		}
	}
	ends := left.IsEmpty() && w.bucket == eventlog.Attempted
	if len(found) > 0 || ends || also != nil {
		err = s.writer.Run(ctx, func(b *batch) error {
			if err := b.removeLeftovers(found, ends); err != nil || also == nil {
				return err
			}
			return also(b, len(found))
		})
	}
	if w.ids == nil || err != nil {
		return false, err
	}
	switch w.left = left; {
	case ends:
		w.ids = nil
	case left.IsEmpty():
		w.bucket, w.left = eventlog.Attempted, eventlog.Range{Last: math.MaxUint64}
	}
	return true, nil
}

// deletedWebhooks returns the IDs of the webhooks for the next sweep, or nil if there are none.
func (s *engine) deletedWebhooks(ctx context.Context) (ids map[string]bool, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	defer s.done(tx, catchFaults(), &err)
	c := tx.Bucket(schema.Deleted).Cursor()
	for id, _ := c.First(); id != nil && len(ids) < maxSwept; id, _ = c.Next() {
		if ids == nil {
			ids = make(map[string]bool)
		}
		ids[string(id)] = true
	}
	return ids, nil
}

// findLeftovers searches the sweep's current bucket. It returns the rows found and the range that
// is still to be searched.
func (s *engine) findLeftovers(ctx context.Context, limit int) (found []driver.DeliveryRef, left eventlog.Range, err error) {
	began := time.Now()
	tx, err := s.view(ctx)
	if err != nil {
		return nil, left, err
	}
	defer s.done(tx, catchFaults(), &err)
	r := eventlog.PendingReader{View: s.log.View(tx), Now: began}
	r.Full = func() bool { return len(found) >= limit || time.Since(began) > maxSweepTime }
	r.Visit = func(webhook []byte, d driver.PendingDelivery) {
		if s.sweeper.ids[string(webhook)] {
			found = append(found, driver.DeliveryRef{WebhookID: string(webhook), Number: d.Number})
		}
	}
	return found, r.Read(s.sweeper.bucket, s.sweeper.left), nil
}

// removeLeftovers removes the rows in found. If ends is set, the sweep is complete, and
// removeLeftovers also removes the sweep's webhooks from schema.Deleted. It skips rows of webhooks
// that are no longer listed there: their accounts have been erased, and new webhooks may use their
// IDs.
func (b *batch) removeLeftovers(found []driver.DeliveryRef, ends bool) error {
	if len(found) == 0 && !ends {
		return nil
	}
	if err := b.Flush(); err != nil {
		return err
	}
	for _, l := range found {
		if !b.hasLeftovers(l.WebhookID) {
			continue
		}
		if err := b.log.Discard(l); err != nil {
			return err
		}
	}
	if !ends {
		return nil
	}
	for id := range b.store.sweeper.ids {
		if err := b.Delete(schema.Deleted, []byte(id)); err != nil {
			return err
		}
	}
	return nil
}
