package bolt

import (
	"context"
	"slices"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/webhooks"
)

// EventDeliveries implements [webhooks.Store].
func (s *Store) EventDeliveries(ctx context.Context, account, eventID string) (list []webhooks.Delivery, err error) {
	found := s.ids.find(s.ids.secret.keyOf(account, eventID))
	tx, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	defer s.done(tx, catchFaults(), &err)
	if s.erasing.has(account) {
		return nil, webhooks.ErrNotFound
	}
	segment, i, err := readEventID(tx, found, account, eventID)
	if err != nil {
		return nil, err
	}
	event, err := segment.Event(i)
	if err != nil {
		return nil, err
	}
	for number, webhook := range segment.Recipients(i) {
		d, err := s.deliveryOf(tx, segment, &event, number, string(webhook))
		if err != nil {
			return nil, err
		}
		if d.State != "" {
			list = append(list, d)
		}
	}
	slices.SortFunc(list, func(a, b webhooks.Delivery) int { return strings.Compare(a.WebhookID, b.WebhookID) })
	return list, nil
}

// deliveryOf returns the event's delivery of that number: pending, or else as it was
// settled, or else skipped. One that is none of these, without a State, was pending for a
// webhook that was deleted, or was purged. Rows that say it is pending do not count if the
// webhook is deleted, see [sweeper].
func (s *Store) deliveryOf(tx *bbolt.Tx, segment *record.Segment, event *record.Event, number uint64, webhook string) (webhooks.Delivery, error) {
	d := webhooks.Delivery{EventID: event.ID, WebhookID: webhook, Type: event.Type, PublishedAt: event.PublishedAt}
	there := tx.Bucket(bucketWebhookIDs).Get([]byte(webhook)) != nil
	if there && inBitmap(tx, bucketFresh, number) {
		d.State, d.NextAttemptAt = webhooks.Pending, event.PublishedAt
		return d, nil
	}
	if inBitmap(tx, bucketSkipped, number) {
		d.State = webhooks.Skipped
	}
	attempts, state, err := attemptsAt(tx, segment, number)
	if err != nil {
		return d, err
	}
	if d.Attempts = attempts; state != "" {
		d.State = state
	}
	if value := tx.Bucket(bucketPending).Get(record.NumberKey(number)); value != nil && there {
		p, err := record.DecodePending(value)
		if err != nil {
			return d, err
		}
		d.State, d.NextAttemptAt = webhooks.Pending, s.clock.Wall(p.Due)
	}
	return d, nil
}
