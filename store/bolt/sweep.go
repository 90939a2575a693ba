package bolt

import (
	"context"
	"errors"
	"time"

	"github.com/storageapi/storageapi/store/bolt/internal/eventlog"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// A sweep removes the pending deliveries of deleted webhooks. Readers ignore these rows, and only
// a scan of all pending deliveries finds them. So a deletion lists the webhook's ID in
// schema.Deleted, and the next sweep searches for the rows of all listed webhooks at once. The
// progress of a sweep is not stored: after a restart, the sweep begins again.

const (
	maxSweepTime = 20 * time.Millisecond // time limit for one search
	maxSwept     = 10_000                // webhooks per sweep
	sweptAtOnce  = 1000                  // rows removed per step while a caller waits for the sweep
)

// errLeftovers is returned if a new webhook would have the ID of a deleted webhook whose pending
// rows may still exist. These rows would count as deliveries of the new webhook.
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
	if err := s.takeTurn(ctx, s.sweeping); err != nil {
		return false, err
	}
	defer func() { <-s.sweeping }()
	if s.swept.IsDone() {
		webhooks, err := s.deletedWebhooks(ctx)
		if err != nil {
			return false, err
		}
		s.swept = eventlog.NewSweep(webhooks)
	}
	found, next, err := s.findLeftovers(ctx, limit)
	if err != nil {
		return false, err
	}
	var ended map[string]bool
	if next.IsDone() {
		ended = s.swept.Webhooks
	}
	if len(found) > 0 || len(ended) > 0 || also != nil {
		err = s.writer.Run(ctx, func(b *batch) error {
			if err := b.removeLeftovers(found, ended); err != nil || also == nil {
				return err
			}
			return also(b, len(found))
		})
	}
	if s.swept.IsDone() || err != nil {
		return false, err
	}
	s.swept = next
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

// findLeftovers continues the search of the current sweep. It returns the rows found and the rest
// of the sweep.
func (s *engine) findLeftovers(ctx context.Context, limit int) (found []driver.DeliveryRef, next eventlog.Sweep, err error) {
	if s.swept.IsDone() {
		return nil, next, nil
	}
	began := time.Now()
	tx, err := s.view(ctx)
	if err != nil {
		return nil, next, err
	}
	defer s.done(tx, catchFaults(), &err)
	found, next = s.swept.Find(s.log.View(tx), func(found int) bool { return found >= limit || time.Since(began) > maxSweepTime })
	return found, next, nil
}

// removeLeftovers removes the rows in found, and removes the webhooks of a sweep that ends from
// schema.Deleted. It skips rows of webhooks that are no longer listed there: their accounts have
// been erased, and new webhooks may use their IDs.
func (b *batch) removeLeftovers(found []driver.DeliveryRef, ended map[string]bool) error {
	if len(found)+len(ended) == 0 {
		return nil
	}
	if err := b.Flush(); err != nil {
		return err
	}
	for _, l := range found {
		if !b.hasLeftovers(l.WebhookID) {
			continue
		}
		if err := b.log.RemovePending(l.Number); err != nil {
			return err
		}
	}
	for id := range ended {
		if err := b.Delete(schema.Deleted, []byte(id)); err != nil {
			return err
		}
	}
	return nil
}
