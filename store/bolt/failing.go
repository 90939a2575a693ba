package bolt

import (
	"context"
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

// list keeps the webhook among those that FailingWebhooks looks at, or not.
func (b *batch) list(w *webhooks.Webhook) error {
	if w.Active && w.FailedAgain {
		return b.Put(bucketFailing, []byte(w.ID), []byte(w.Account))
	}
	return b.Delete(bucketFailing, []byte(w.ID))
}

// FailingWebhooks implements [webhooks.Store]. One that cannot be read is left out:
// nothing is sent to it.
func (s *Store) FailingWebhooks(ctx context.Context, since time.Time, page webhooks.Page) (list []webhooks.Webhook, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	defer s.done(tx, &err)
	c := tx.Bucket(bucketFailing).Cursor()
	id, account := lastOf(c)
	if page.After != "" {
		if found, _ := c.Seek([]byte(page.After)); found != nil {
			id, account = c.Prev()
		}
	}
	for ; id != nil && len(list) < page.Limit; id, account = c.Prev() {
		w, unreadable := s.webhookByID(tx, string(account), string(id))
		if unreadable == nil && !w.FailingSince.IsZero() && !w.FailingSince.After(since) {
			list = append(list, w)
		}
	}
	return list, nil
}
