package bolt

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/storageapi/storageapi/store/bolt/internal/eventlog"
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

// Purge implements [driver.WebhookStore]. It also indexes complete runs, removes rows of deleted
// webhooks, marks the clock, and keeps the list of free pages and the root bucket short.
func (s *engine) Purge(ctx context.Context, purge driver.Purge) (more bool, err error) {
	if more, err = s.purgeStep(ctx, purge); err != nil {
		return more, err
	}
	parking := s.park(ctx, more)
	if !more && !parking {
		s.mergeRoot(ctx)
	}
	return more || parking, nil
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

// purge is the step of Purge.
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
	b.AfterCommit(func() { s.feed.ended(ended) })
	if left <= 0 {
		return true, nil
	}
	for _, step := range []func() error{
		func() error { return purgeRecoveries(b, purge.Attempts, &left) },
		func() error {
			return b.DeleteBefore(bucketDedupKeys, uint64(max(purge.DedupKeys.UnixMilli(), 0)), &left)
		},
		func() error { return s.purgeAuditEntries(b, purge.AuditEntries, &left) },
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

// A sweeper removes pending deliveries that deleted webhooks left. Such rows are ignored, but only
// a scan of all pending deliveries finds them. So deletions list the webhook's ID in bucketDeleted,
// and the next sweep looks for the rows of all listed webhooks at once.
type sweeper struct {
	turn chan struct{} // capacity 1: one call sweeps at a time

	// Progress of the sweep. It starts again after a restart.
	ids    map[string]bool // nil: no sweep is under way
	bucket int             // AsPublished or Attempted
	left   eventlog.Range
}

const (
	maxSweepTime = 20 * time.Millisecond // for the search of a step
	maxSwept     = 10_000                // webhooks in a sweep
	sweptAtOnce  = 1000                  // rows removed in a step while a call waits for the sweep
)

// errLeftovers is returned by a step that creates a webhook with a deleted webhook's ID while
// pending rows may remain, which would count for the new one.
var errLeftovers = errors.New("rows of a deleted webhook of that ID may still be there")

// noteDeleted lists a deleted webhook for the next sweep, unless nothing is pending at all.
func (b *batch) noteDeleted(account, id string) error {
	if b.log.NothingPending() {
		return nil
	}
	return b.Put(bucketDeleted, []byte(id), []byte(account))
}

// hasLeftovers reports whether rows of a deleted webhook prevent a new one with its ID.
func (b *batch) hasLeftovers(id string) bool { return b.Get(bucketDeleted, []byte(id)) != nil }

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

// sweep removes about limit rows left by deleted webhooks, and reports whether there may be more.
// Unless also is nil, the step then calls it with the number of removed rows. If the step fails,
// the rows remain for the next call.
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

// deletedWebhooks returns the IDs of the webhooks for the next sweep; nil if there are none.
func (s *engine) deletedWebhooks(ctx context.Context) (ids map[string]bool, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	defer s.done(tx, catchFaults(), &err)
	c := tx.Bucket(bucketDeleted).Cursor()
	for id, _ := c.First(); id != nil && len(ids) < maxSwept; id, _ = c.Next() {
		if ids == nil {
			ids = make(map[string]bool)
		}
		ids[string(id)] = true
	}
	return ids, nil
}

// findLeftovers searches the sweep's current bucket, and returns the range that remains.
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

// removeLeftovers removes rows, and at the end of a sweep its webhooks from bucketDeleted. It skips
// webhooks that are no longer listed, which were erased: their IDs may be in use again.
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
		if err := b.Delete(bucketDeleted, []byte(id)); err != nil {
			return err
		}
	}
	return nil
}
