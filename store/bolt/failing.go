package bolt

import (
	"context"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/webhooks"
)

// list keeps the webhook among those that FailingWebhooks and HeldWebhooks look at, or
// not.
func (b *batch) list(w *webhooks.Webhook) error {
	if err := b.listIn(bucketFailing, w, w.Claimable() && w.FailedAgain); err != nil {
		return err
	}
	return b.listIn(bucketHeld, w, w.Held)
}

func (b *batch) listIn(bucket []byte, w *webhooks.Webhook, listed bool) error {
	if listed {
		return b.Put(bucket, []byte(w.ID), []byte(w.Account))
	}
	return b.Delete(bucket, []byte(w.ID))
}

// FailingWebhooks implements [webhooks.Store]. One that cannot be read is left out:
// nothing is sent to it.
func (s *Store) FailingWebhooks(ctx context.Context, since time.Time, page webhooks.Page) ([]webhooks.Webhook, error) {
	return s.listed(ctx, bucketFailing, page, func(w *webhooks.Webhook) bool {
		return !w.FailingSince.IsZero() && !w.FailingSince.After(since)
	})
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
	defer s.done(tx, &err)
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
	defer s.done(tx, &err)
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
