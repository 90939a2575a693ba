package bolt

import (
	"context"
	"time"

	"github.com/storageapi/storageapi/store/bolt/internal/eventlog"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/webhooks"
)

// Unreported implements [webhooks.Deliveries].
func (s *Store) Unreported(ctx context.Context, webhookID string) (backlog webhooks.Backlog, err error) {
	if err := s.writer.Applied(ctx); err != nil {
		return webhooks.Backlog{}, err
	}
	err = s.eachPending(ctx, s.feed.unreported(), func(now time.Time, d webhooks.PendingDelivery) {
		if webhookID != "" && d.Webhook.ID != webhookID {
			return
		}
		backlog.Pending++
		if d.Webhook.Claimable() && !d.Due.After(now) && (backlog.OldestDue.IsZero() || d.Due.Before(backlog.OldestDue)) {
			backlog.OldestDue = d.Due
		}
	})
	if err != nil {
		return webhooks.Backlog{}, err
	}
	if !backlog.OldestDue.IsZero() {
		backlog.OldestDue = record.Round(backlog.OldestDue)
	}
	if webhookID == "" {
		backlog.Held, err = s.countHeld(ctx)
	}
	return backlog, err
}

// eachPending visits the pending deliveries whose numbers are in the range of their bucket.
func (s *Store) eachPending(ctx context.Context, ranges [2]eventlog.Range, visit func(now time.Time, d webhooks.PendingDelivery)) (err error) {
	version := s.webhookRows.Version()
	tx, err := s.view(ctx)
	if err != nil {
		return err
	}
	defer s.done(tx, catchFaults(), &err)
	now := time.Now()
	r := s.newPendingReader(tx, version, func(d webhooks.PendingDelivery) { visit(now, d) })
	r.Full = func() bool { return ctx.Err() != nil }
	for bucket, numbers := range ranges {
		if !numbers.IsEmpty() {
			r.Read(bucket, numbers)
		}
	}
	return ctx.Err()
}

// Ping implements [webhooks.Deliveries].
func (s *Store) Ping(ctx context.Context) (err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return err
	}
	defer s.done(tx, catchFaults(), &err)
	if tx.Bucket(bucketMeta).Get(keySchema) == nil {
		return ErrSchema
	}
	return nil
}
