package bolt

import (
	"context"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/requests"
	"github.com/storageapi/storageapi/store/bolt/internal/rows"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// CreateWebhook implements [driver.WebhookStore].
func (s *engine) CreateWebhook(ctx context.Context, webhook driver.Webhook, options driver.CreateOptions) error {
	for {
		err := s.createWebhook(ctx, &webhook, &options)
		if err != errLeftovers {
			return err
		}
		if err := s.sweepAll(ctx); err != nil {
			return err
		}
	}
}

func (s *engine) createWebhook(ctx context.Context, webhook *driver.Webhook, options *driver.CreateOptions) error {
	return s.writer.Run(ctx, func(b *batch) error {
		if err := b.checkCredential(webhook.Account, options.By); err != nil {
			return err
		}
		if b.isErasing(webhook.Account) {
			return auth.ErrErasing
		}
		if err := requests.Repeated(b.tx, requests.Webhook, webhook.Account, options); err != nil {
			return err
		}
		switch {
		case b.Get(schema.WebhookIDs, []byte(webhook.ID)) != nil:
			return apierr.ErrExists
		case options.MaxCount > 0 && len(s.webhookRows.ofAccount(b.Tx, webhook.Account).list) >= options.MaxCount:
			return apierr.ErrLimit
		case b.hasLeftovers(webhook.ID):
			return errLeftovers
		}
		if err := s.requests.Check(b.Tx, requests.Webhook, webhook.Account, options); err != nil {
			return err
		}
		if err := s.requests.Note(b.Tx, requests.Webhook, webhook.Account, webhook.ID, options); err != nil {
			return err
		}
		if err := b.Put(schema.WebhookIDs, []byte(webhook.ID), []byte(webhook.Account)); err != nil {
			return err
		}
		if err := b.tell(options.AuditEntry); err != nil {
			return err
		}
		if err := s.markDue(b, webhook.Account); err != nil {
			return err
		}
		return s.putWebhook(b, webhook)
	})
}

// WebhookByID implements [driver.WebhookStore].
func (s *engine) WebhookByID(ctx context.Context, account, id string) (webhook driver.Webhook, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return webhook, err
	}
	defer s.done(tx, catchFaults(), &err)
	return s.webhookByID(tx, account, id)
}

func (s *engine) webhookByID(tx *bbolt.Tx, account, id string) (driver.Webhook, error) {
	value := tx.Bucket(schema.Webhooks).Get(record.Prefixed(account, id))
	if value == nil || s.erasing.has(account) {
		return driver.Webhook{}, apierr.ErrNotFound
	}
	return s.decodeWebhook(account, id, value)
}

// ListWebhooks implements [driver.WebhookStore].
func (s *engine) ListWebhooks(ctx context.Context, account string, page driver.ListQuery) (list []driver.Webhook, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	defer s.done(tx, catchFaults(), &err)
	if s.erasing.has(account) {
		return nil, nil
	}
	for id, value := range rows.Descend(tx.Bucket(schema.Webhooks), record.Prefixed(account, ""), page.After) {
		webhook, err := s.decodeWebhook(account, string(id), value)
		if err != nil {
			return list, err
		}
		if list = append(list, webhook); len(list) >= page.Limit {
			break
		}
	}
	return list, nil
}

// UpdateWebhook implements [driver.WebhookStore].
func (s *engine) UpdateWebhook(ctx context.Context, account, id string, change func(*driver.Webhook, *audit.Entry) error) (driver.Webhook, error) {
	var updated driver.Webhook
	err := s.writer.Run(ctx, func(b *batch) error {
		old, err := s.webhookByID(b.tx, account, id)
		if err == nil && b.isErasing(account) {
			err = apierr.ErrNotFound
		}
		if err != nil {
			return err
		}
		updated = old
		var entry audit.Entry
		if err := change(&updated, &entry); err != nil {
			return err
		}
		updated.ID, updated.Account, updated.CreatedAt = old.ID, old.Account, old.CreatedAt
		if err := s.markDue(b, account); err != nil {
			return err
		}
		if err := s.putWebhook(b, &updated); err != nil {
			return err
		}
		if err := b.tell(entry); err != nil {
			return err
		}
		updated, err = s.webhookByID(b.tx, account, id) // as later reads will return it
		return err
	})
	if err != nil {
		return driver.Webhook{}, err
	}
	return updated, nil
}

// DeleteWebhook implements [driver.WebhookStore].
func (s *engine) DeleteWebhook(ctx context.Context, account, id string, check func(driver.Webhook) error, entry audit.Entry) error {
	return s.writer.Run(ctx, func(b *batch) error {
		if err := s.deleteWebhook(b, account, id, check); err != nil {
			return err
		}
		return b.tell(entry)
	})
}

func (s *engine) deleteWebhook(b *batch, account, id string, check func(driver.Webhook) error) error {
	row := record.Prefixed(account, id)
	if b.Get(schema.Webhooks, row) == nil || b.isErasing(account) {
		return apierr.ErrNotFound
	}
	if check != nil { // without check, unreadable webhooks can be deleted
		webhook, err := s.webhookByID(b.tx, account, id)
		if err != nil {
			return err
		}
		if err := check(webhook); err != nil {
			return err
		}
	}
	if err := s.removeWebhook(b, account, id); err != nil {
		return err
	}
	if err := s.markDue(b, account); err != nil {
		return err
	}
	b.AfterCommit(func() { s.feed.Forget(driver.Scope{WebhookID: id}) })
	return b.noteDeleted(account, id)
}

// removeWebhook removes the rows of a webhook. It does not remove the rows of its deliveries.
func (s *engine) removeWebhook(b *batch, account, id string) error {
	s.webhookRows.change(b.Tx, account, id, nil)
	if err := b.Delete(schema.Webhooks, record.Prefixed(account, id)); err != nil {
		return err
	}
	if err := b.Delete(schema.WebhookIDs, []byte(id)); err != nil {
		return err
	}
	if err := b.Delete(schema.WebhookRecoveries, []byte(id)); err != nil {
		return err
	}
	for _, list := range schema.WebhookLists {
		if err := b.Delete(list.Bucket, []byte(id)); err != nil {
			return err
		}
	}
	return nil
}

// putWebhook stores a webhook, and reports it to the scheduler after the commit. It ignores the
// caller's version and sets the stored version plus 1.
func (s *engine) putWebhook(b *batch, webhook *driver.Webhook) error {
	account, id := webhook.Account, webhook.ID
	row := record.Prefixed(account, id)
	old, next := b.Get(schema.Webhooks, row), *webhook
	next.Version = record.WebhookVersion(old) + 1
	value := append(record.EncodeWebhook(&next, s.dataKey), record.WebhookFields(old)...)
	stored := s.webhookRows.decoded(account, id, value)
	s.webhookRows.change(b.Tx, account, id, stored)
	b.AfterCommit(func() { s.feed.Webhook(&stored.Webhook) })
	if err := b.list(webhook); err != nil {
		return err
	}
	return b.Put(schema.Webhooks, row, value)
}

// list adds the webhook to the lists that should have it, and removes it from the others.
func (b *batch) list(w *driver.Webhook) error {
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

// FailingWebhooks implements [driver.WebhookStore]. It omits unreadable webhooks, which get no
// deliveries.
func (s *engine) FailingWebhooks(ctx context.Context, since time.Time, page driver.ListQuery) ([]driver.Webhook, error) {
	return s.listed(ctx, schema.Failing, page, func(w *driver.Webhook) bool {
		return !w.FailingSince.IsZero() && !w.FailingSince.After(since)
	})
}

// OffWebhooks implements [driver.WebhookStore]. It omits unreadable webhooks, which get no
// deliveries.
func (s *engine) OffWebhooks(ctx context.Context, page driver.ListQuery) ([]driver.Webhook, error) {
	return s.listed(ctx, schema.Off, page, func(*driver.Webhook) bool { return true })
}

// HeldWebhooks implements [driver.WebhookStore]. It omits unreadable webhooks, which get no
// deliveries.
func (s *engine) HeldWebhooks(ctx context.Context, page driver.ListQuery) ([]driver.Webhook, error) {
	return s.listed(ctx, schema.Held, page, func(*driver.Webhook) bool { return true })
}

// listed returns a page of the webhooks that the bucket lists and for which has(w) is true.
func (s *engine) listed(ctx context.Context, bucket []byte, page driver.ListQuery, has func(*driver.Webhook) bool) (list []driver.Webhook, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	defer s.done(tx, catchFaults(), &err)
	for id, account := range rows.Descend(tx.Bucket(bucket), nil, page.After) {
		if len(list) >= page.Limit {
			break
		}
		if w, unreadable := s.webhookByID(tx, string(account), string(id)); unreadable == nil && has(&w) {
			list = append(list, w)
		}
	}
	return list, nil
}

// countHeld returns the number of webhooks on hold.
func (s *engine) countHeld(ctx context.Context) (held int, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return 0, err
	}
	defer s.done(tx, catchFaults(), &err)
	return rows.Count(tx.Bucket(schema.Held), nil), nil
}
