package bolt

import (
	"context"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/webhooks"
)

// Unreported implements [webhooks.Deliveries].
func (s *Store) Unreported(ctx context.Context, webhookID string) (backlog webhooks.Backlog, err error) {
	err = s.eachPending(ctx, s.feed.unreported(), func(r *pendingReader, d webhooks.PendingDelivery) {
		if webhookID != "" && d.Webhook.ID != webhookID {
			return
		}
		backlog.Pending++
		if d.Webhook.Claimable() && !d.Due.After(r.now) && (backlog.OldestDue.IsZero() || d.Due.Before(backlog.OldestDue)) {
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
func (s *Store) eachPending(ctx context.Context, ranges [2]numberRange, visit func(*pendingReader, webhooks.PendingDelivery)) (err error) {
	version := s.index.readVersion()
	tx, err := s.view(ctx)
	if err != nil {
		return err
	}
	defer s.done(tx, catchFaults(), &err)
	r := s.newPendingReader(tx, version)
	r.visit = func(d webhooks.PendingDelivery) { visit(r, d) }
	r.full = func() bool { return ctx.Err() != nil }
	for bucket, numbers := range ranges {
		if !numbers.isEmpty() {
			r.read(bucket, numbers)
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
