package memory

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/fields"
	"github.com/storageapi/storageapi/internal/listed"
	"github.com/storageapi/storageapi/store/driver"
)

// CreateWebhook implements [driver.WebhookStore].
func (s *Store) CreateWebhook(ctx context.Context, w driver.Webhook, options driver.CreateOptions) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if err := s.checkCredential(w.Account, options.By); err != nil {
		return err
	}
	if made, known := s.webhookRequests.before(w.Account, &options); known {
		return made
	}
	switch {
	case s.webhookIDs[w.ID]:
		return apierr.ErrExists
	case options.MaxCount > 0 && len(s.webhooks[w.Account]) >= options.MaxCount:
		return apierr.ErrLimit
	case s.webhookRequests.full(w.Account, &options):
		return apierr.ErrIdempotencyKeys
	}
	w = copyOf(w)
	w.Version = 1
	s.webhooks.insert(w.Account, w.ID, &w)
	s.webhookIDs[w.ID] = true
	s.webhookRequests.note(w.Account, w.ID, &options)
	s.markDue(w.Account)
	s.entries.add(options.AuditEntry)
	return nil
}

// WebhookByID implements [driver.WebhookStore].
func (s *Store) WebhookByID(ctx context.Context, account, id string) (driver.Webhook, error) {
	if err := s.begin(ctx); err != nil {
		return driver.Webhook{}, err
	}
	defer s.mu.Unlock()
	w := s.webhooks.find(account, id)
	if w == nil {
		return driver.Webhook{}, apierr.ErrNotFound
	}
	return copyOf(*w), nil
}

// ListWebhooks implements [driver.WebhookStore].
func (s *Store) ListWebhooks(ctx context.Context, account string, page driver.ListQuery) ([]driver.Webhook, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	list := []driver.Webhook{}
	for w := range s.webhooks.page(account, page.After, page.Limit) {
		list = append(list, copyOf(*w))
	}
	return list, nil
}

// UpdateWebhook implements [driver.WebhookStore].
func (s *Store) UpdateWebhook(ctx context.Context, account, id string, change func(*driver.Webhook, *audit.Entry) error) (driver.Webhook, error) {
	if err := s.begin(ctx); err != nil {
		return driver.Webhook{}, err
	}
	defer s.mu.Unlock()
	w := s.webhooks.find(account, id)
	if w == nil {
		return driver.Webhook{}, apierr.ErrNotFound
	}
	changed := copyOf(*w)
	var entry audit.Entry
	if err := change(&changed, &entry); err != nil {
		return driver.Webhook{}, err
	}
	changed.ID, changed.Account, changed.CreatedAt, changed.Version = w.ID, w.Account, w.CreatedAt, w.Version
	s.markDue(account)
	s.entries.add(entry)
	return copyOf(*s.change(changed)), nil
}

// DeleteWebhook implements [driver.WebhookStore].
func (s *Store) DeleteWebhook(ctx context.Context, account, id string, check func(driver.Webhook) error, entry audit.Entry) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	w := s.webhooks.find(account, id)
	if w == nil {
		return apierr.ErrNotFound
	}
	if check != nil {
		if err := check(copyOf(*w)); err != nil {
			return err
		}
	}
	for r, d := range s.deliveries {
		if r.WebhookID == id && d.State == driver.Pending && !d.settleAgain() {
			s.remove(d)
		}
	}
	s.webhooks.remove(account, id)
	delete(s.webhookIDs, id)
	s.markDue(account)
	s.entries.add(entry)
	if s.feed != nil {
		s.feed.Forget(driver.Scope{WebhookID: id})
	}
	return nil
}

// change stores a changed webhook and returns it. The stored webhook is shared with callers, so it
// must be replaced and never modified.
func (s *Store) change(w driver.Webhook) *driver.Webhook {
	w = copyOf(w)
	w.Version++
	s.webhooks.replace(w.Account, w.ID, &w)
	if s.feed != nil {
		s.feed.Webhook(&w)
	}
	return &w
}

// copyOf returns a deep copy of w, with times in UTC truncated to milliseconds.
func copyOf(w driver.Webhook) driver.Webhook {
	fields.Copy((*listed.Webhook)(&w))
	return w
}

// FailingWebhooks implements [driver.WebhookStore].
func (s *Store) FailingWebhooks(ctx context.Context, since time.Time, page driver.ListQuery) ([]driver.Webhook, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	return s.webhooksWith(page, func(w *driver.Webhook) bool {
		return w.Claimable() && w.FailedAgain && !w.FailingSince.IsZero() && !w.FailingSince.After(since)
	}), nil
}

// OffWebhooks implements [driver.WebhookStore].
func (s *Store) OffWebhooks(ctx context.Context, page driver.ListQuery) ([]driver.Webhook, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	return s.webhooksWith(page, func(w *driver.Webhook) bool { return !w.Active }), nil
}

// HeldWebhooks implements [driver.WebhookStore].
func (s *Store) HeldWebhooks(ctx context.Context, page driver.ListQuery) ([]driver.Webhook, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	return s.webhooksWith(page, func(w *driver.Webhook) bool { return w.Held }), nil
}

// webhooksWith returns a page of the webhooks, of all accounts, for which has returns true.
func (s *Store) webhooksWith(page driver.ListQuery, has func(*driver.Webhook) bool) (list []driver.Webhook) {
	for _, rows := range s.webhooks {
		for _, row := range rows {
			if w := row.record; has(w) && (page.After == "" || w.ID < page.After) {
				list = append(list, copyOf(*w))
			}
		}
	}
	slices.SortFunc(list, func(a, b driver.Webhook) int { return strings.Compare(b.ID, a.ID) })
	return list[:min(len(list), page.Limit)]
}
