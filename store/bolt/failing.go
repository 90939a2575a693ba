package bolt

import (
	"context"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/webhooks"
)

// list keeps the webhook in the lists that have it, and in no other.
func (b *batch) list(w *webhooks.Webhook) error {
	for _, list := range schema.WebhookLists {
		var account []byte
		if list.Has(w) {
			account = []byte(w.Account)
		}
		if err := b.PutOrDelete(list.Bucket, []byte(w.ID), account); err != nil {
			return err
		}
	}
	return nil
}

// FailingWebhooks implements [webhooks.Store]. One that cannot be read is left out:
// nothing is sent to it.
func (s *Store) FailingWebhooks(ctx context.Context, since time.Time, page webhooks.Page) ([]webhooks.Webhook, error) {
	return s.listed(ctx, bucketFailing, page, func(w *webhooks.Webhook) bool {
		return !w.FailingSince.IsZero() && !w.FailingSince.After(since)
	})
}

// OffWebhooks implements [webhooks.Store]. One that cannot be read is left out: nothing is
// sent to it.
func (s *Store) OffWebhooks(ctx context.Context, page webhooks.Page) ([]webhooks.Webhook, error) {
	return s.listed(ctx, bucketOff, page, func(*webhooks.Webhook) bool { return true })
}

// HeldWebhooks implements [webhooks.Store]. One that cannot be read is left out: nothing is
// sent to it.
func (s *Store) HeldWebhooks(ctx context.Context, page webhooks.Page) ([]webhooks.Webhook, error) {
	return s.listed(ctx, bucketHeld, page, func(*webhooks.Webhook) bool { return true })
}

// listed returns a part of the webhooks of a bucket of ids for which has holds.
func (s *Store) listed(ctx context.Context, bucket []byte, page webhooks.Page, has func(*webhooks.Webhook) bool) (list []webhooks.Webhook, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	defer s.done(tx, catchFaults(), &err)
	below := beyond
	if page.After != "" {
		below = []byte(page.After)
	}
	c := tx.Bucket(bucket).Cursor()
	_, _ = c.Seek(below) // or beyond the last
	for id, account := c.Prev(); id != nil && len(list) < page.Limit; id, account = c.Prev() {
		if w, unreadable := s.webhookByID(tx, string(account), string(id)); unreadable == nil && has(&w) {
			list = append(list, w)
		}
	}
	return list, nil
}

// countHeld returns how many webhooks are on hold.
func (s *Store) countHeld(ctx context.Context) (held int, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return 0, err
	}
	defer s.done(tx, catchFaults(), &err)
	return keysIn(tx.Bucket(bucketHeld)), nil
}

// keysIn counts the keys of a bucket.
func keysIn(bucket *bbolt.Bucket) (n int) {
	c := bucket.Cursor()
	for k, _ := c.First(); k != nil; k, _ = c.Next() {
		n++
	}
	return n
}
