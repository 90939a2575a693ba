package webhooks

import (
	"cmp"
	"context"
	"iter"

	"github.com/storageapi/storageapi/internal/input"
)

// A Page asks for a part of a list that is ordered by descending id.
type Page struct {
	After string // the id after which the part begins; empty: at the start
	Limit int    // how many at most; at least 1
}

// A WebhookPage is a part of a list of webhooks, newest first.
type WebhookPage struct {
	Webhooks []Webhook

	// Next is the [Page.After] of the page that follows; empty if there is none.
	Next string
}

// List returns a page of the account's webhooks, newest first; an empty one past the end.
// page.Limit must be at least 1.
func (s *WebhookService) List(ctx context.Context, account string, page Page) (WebhookPage, error) {
	return s.listAcross(page, "the account's", func(page Page) ([]Webhook, error) { return s.store.ListWebhooks(ctx, account, page) })
}

// pageSize is how many things an iterator reads at a time.
const pageSize = 100

// All returns all of the account's webhooks, newest first. What is created meanwhile is not
// among them. It ends after the first error.
func (s *WebhookService) All(ctx context.Context, account string) iter.Seq2[Webhook, error] {
	return input.Pages(func(after string) ([]Webhook, string, error) {
		page, err := s.List(ctx, account, Page{After: after, Limit: pageSize})
		return page.Webhooks, page.Next, err
	})
}

// AllDeliveries returns all deliveries of the account's webhook that the query asks for,
// newest first, from query.After on; query.Limit is how many are read at a time, and may
// be 0. It ends after the first error.
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
