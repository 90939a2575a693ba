package webhooks

import (
	"cmp"
	"context"
	"iter"

	"github.com/storageapi/storageapi/internal/input"
)

// A Page selects a part of a list in descending order of IDs.
type Page struct {
	After string // the ID after which the page begins; empty: at the start
	Limit int    // page size; at least 1
}

// A WebhookPage is one page of a list of webhooks, newest first.
type WebhookPage struct {
	Webhooks []Webhook

	// Next is the [Page.After] of the following page; empty if there is none.
	Next string
}

// List returns a page of the account's webhooks, newest first; an empty page past the end.
// page.Limit must be at least 1.
func (s *WebhookService) List(ctx context.Context, account string, page Page) (WebhookPage, error) {
	return s.listAcross(page, "the account's", func(page Page) ([]Webhook, error) { return s.store.ListWebhooks(ctx, account, page) })
}

// pageSize is the number of items that an iterator reads at a time.
const pageSize = 100

// All returns all of the account's webhooks, newest first, without webhooks created during the
// iteration. It ends after the first error.
func (s *WebhookService) All(ctx context.Context, account string) iter.Seq2[Webhook, error] {
	return input.Pages(func(after string) ([]Webhook, string, error) {
		page, err := s.List(ctx, account, Page{After: after, Limit: pageSize})
		return page.Webhooks, page.Next, err
	})
}

// AllDeliveries returns all deliveries of the account's webhook that the query selects, newest
// first, from query.After on. query.Limit is the number read at a time; 0: a default. It ends after
// the first error.
func (s *WebhookService) AllDeliveries(ctx context.Context, account, webhookID string, query DeliveryQuery) iter.Seq2[Delivery, error] {
	if query.Limit == 0 {
		query.Limit = pageSize
	}
	return input.Pages(func(after string) ([]Delivery, string, error) {
		from := query
		from.After = cmp.Or(after, query.After)
		page, err := s.Deliveries(ctx, account, webhookID, from)
		return page.Deliveries, page.Next, err
	})
}
