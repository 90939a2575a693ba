package bolt

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/store/bolt/internal/eventlog"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// Enqueue implements [driver.WebhookStore].
func (s *engine) Enqueue(ctx context.Context, event driver.EncodedEvent) (deliveries int, err error) {
	// Prepare the event before the write transaction, so that other writers do not wait.
	e := s.log.NewEvent(&event)
	defer e.Recycle()
	err = s.writer.Run(ctx, func(b *batch) error {
		deliveries, _, err = s.enqueue(b, e, "")
		return err
	})
	return deliveries, err
}

// enqueue stores an event for all subscribed webhooks. If only is not empty, it stores the event
// for the subscriber with this ID alone. It returns the number of deliveries pending after
// publication, and whether the event is new.
func (s *engine) enqueue(b *batch, e *eventlog.Event, only string) (deliveries int, isNew bool, err error) {
	if b.isErasing(e.Account) {
		return 0, false, auth.ErrErasing
	}
	if known, err := b.log.Known(e); !errors.Is(err, apierr.ErrNotFound) {
		return known.Deliveries, false, err
	}
	to := s.webhookRows.ofAccount(b.Tx, e.Account).receiving(&e.EncodedEvent, only)
	first, err := b.log.Publish(e, to.active, to.inactive)
	if err != nil {
		return 0, false, err
	}
	active, now := to.hooks, time.Now()
	if len(active) > 0 {
		b.AfterCommit(func() { s.feed.Published(first, active, now) })
	}
	return len(active), true, nil
}

// EventByID implements [driver.WebhookStore].
func (s *engine) EventByID(ctx context.Context, account, eventID string) (found driver.EncodedEvent, publishedAt time.Time, err error) {
	place := s.log.Find(account, eventID)
	tx, err := s.view(ctx)
	if err != nil {
		return found, publishedAt, err
	}
	defer s.done(tx, catchFaults(), &err)
	log := s.log.View(tx)
	event, err := log.Event(place)
	if err != nil {
		return found, publishedAt, err
	}
	event.Body = log.Body(&event)
	return event.EncodedEvent, event.PublishedAt, nil
}

// EventDeliveries implements [driver.WebhookStore].
func (s *engine) EventDeliveries(ctx context.Context, account, eventID string) (list []driver.Delivery, err error) {
	place := s.log.Find(account, eventID)
	tx, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	defer s.done(tx, catchFaults(), &err)
	log := s.log.View(tx)
	event, err := log.Event(place)
	if err != nil {
		return nil, err
	}
	return log.Deliveries(&event)
}

// ListEvents implements [driver.WebhookStore].
func (s *engine) ListEvents(ctx context.Context, account string, query driver.EventQuery) (page driver.EventPage, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return page, err
	}
	defer s.done(tx, catchFaults(), &err)
	if query.WebhookID != "" && !s.hasWebhook(tx, account, query.WebhookID) {
		return page, apierr.ErrNotFound
	}
	return s.log.View(tx).ListEvents(ctx, account, query)
}

// ListDeliveries implements [driver.WebhookStore].
func (s *engine) ListDeliveries(ctx context.Context, account, webhookID string, query driver.DeliveryQuery) (page driver.DeliveryPage, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return page, err
	}
	defer s.done(tx, catchFaults(), &err)
	if !s.hasWebhook(tx, account, webhookID) {
		return page, apierr.ErrNotFound
	}
	return s.log.View(tx).ListDeliveries(ctx, webhookID, query)
}

// hasWebhook reports whether the account has the webhook, and is not being erased.
func (s *engine) hasWebhook(tx *bbolt.Tx, account, webhookID string) bool {
	return tx.Bucket(schema.Webhooks).Get(record.Prefixed(account, webhookID)) != nil && !s.erasing.has(account)
}

// dedupKeyOf returns the key of a deduplication key's row, which begins with the expiry time.
func dedupKeyOf(account string, n *driver.DedupKey) []byte {
	return append(record.NumberKey(uint64(n.Until.UnixMilli())), record.Prefixed(account, n.Key)...)
}

// UnseenKeys implements [driver.WebhookStore].
func (s *engine) UnseenKeys(ctx context.Context, account string, dedupKeys []driver.DedupKey) (fresh []int, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	defer s.done(tx, catchFaults(), &err)
	rows := tx.Bucket(schema.DedupKeys)
	for i := range dedupKeys {
		if rows.Get(dedupKeyOf(account, &dedupKeys[i])) == nil {
			fresh = append(fresh, i)
		}
	}
	return fresh, nil
}

// EnqueueOnce implements [driver.WebhookStore].
func (s *engine) EnqueueOnce(ctx context.Context, event driver.EncodedEvent, dedupKeys []driver.DedupKey) (deliveries int, err error) {
	e, keys := s.log.NewEvent(&event), make([][]byte, len(dedupKeys))
	defer e.Recycle()
	for i := range dedupKeys {
		keys[i] = dedupKeyOf(event.Account, &dedupKeys[i])
	}
	err = s.writer.Run(ctx, func(b *batch) error {
		if b.isErasing(event.Account) {
			return auth.ErrErasing
		}
		for _, key := range keys {
			if b.Get(schema.DedupKeys, key) != nil {
				return apierr.ErrExists
			}
		}
		for _, key := range keys {
			if err := b.Put(schema.DedupKeys, key, record.Empty()); err != nil {
				return err
			}
		}
		deliveries, _, err = s.enqueue(b, e, "")
		return err
	})
	return deliveries, err
}
