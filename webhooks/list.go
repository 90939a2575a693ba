package webhooks

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/input"
	"github.com/storageapi/storageapi/store/driver"
)

// A WebhookQuery selects a page of an account's webhooks.
type WebhookQuery struct {
	Within auth.Resources // only webhooks that are limited to resources within these; zero means any
	After  string         // [WebhookPage.Next] of the previous page; empty means the newest
	Limit  int            // page size; at least 1
}

// A WebhookPage is one page of a list of webhooks, newest first.
type WebhookPage struct {
	Webhooks []Webhook

	// Next is the [WebhookQuery.After] of the following page; empty if there is none. With
	// [WebhookQuery.Within], List examines at most 1,000 webhooks for a page. Such a page may have
	// fewer than Limit webhooks, or none, even if more follow.
	Next string
}

// maxExamined is the maximum number of webhooks that List examines for one page.
const maxExamined = 1000

// List returns a page of the account's webhooks, newest first. Past the end the page is empty.
func (s *WebhookService) List(ctx context.Context, account string, query WebhookQuery) (WebhookPage, error) {
	if query.Limit < 1 {
		return WebhookPage{}, input.Invalid("limit", "must be at least 1")
	}
	return s.list(query, "the account's", func(query driver.ListQuery) ([]Webhook, error) { return s.store.ListWebhooks(ctx, account, query) })
}

// pageSize is the number of items that an iterator reads at a time.
const pageSize = 100

// All returns an iterator over the account's webhooks, newest first, starting after query.After.
// It ignores query.Limit, omits webhooks created during the iteration, and stops after the first
// error.
func (s *WebhookService) All(ctx context.Context, account string, query WebhookQuery) iter.Seq2[Webhook, error] {
	return input.Pages(func(after string) ([]Webhook, string, error) {
		page, err := s.List(ctx, account, WebhookQuery{Within: query.Within, After: cmp.Or(after, query.After), Limit: pageSize})
		return page.Webhooks, page.Next, err
	})
}

// AllDeliveries returns an iterator over the deliveries that the query selects, in the order of
// [WebhookService.ListDeliveries], starting after query.After. query.Limit is the number of
// deliveries read at a time; 0 means a default. The iterator stops after the first error.
func (s *WebhookService) AllDeliveries(ctx context.Context, account, webhookID string, query DeliveryQuery) iter.Seq2[Delivery, error] {
	return input.Pages(func(after string) ([]Delivery, string, error) {
		part := query
		part.After, part.Limit = cmp.Or(after, query.After), cmp.Or(query.Limit, pageSize)
		page, err := s.ListDeliveries(ctx, account, webhookID, part)
		return page.Deliveries, page.Next, err
	})
}

// AllEvents returns an iterator over the events that the query selects, in the order of
// [WebhookService.ListEvents], starting after query.After. query.Limit is the number of events
// read at a time; 0 means a default. The iterator stops after the first error.
func (s *WebhookService) AllEvents(ctx context.Context, account string, query EventQuery) iter.Seq2[StoredEvent, error] {
	return input.Pages(func(after string) ([]StoredEvent, string, error) {
		part := query
		part.After, part.Limit = cmp.Or(after, query.After), cmp.Or(query.Limit, pageSize)
		page, err := s.ListEvents(ctx, account, part)
		return page.Events, page.Next, err
	})
}

// The following lists cover all accounts and are for the host's operators. They do not check the
// account, so do not use them to answer an account's request.

// AllFailing returns an iterator over the failing webhooks of all accounts. A webhook is failing
// if all its attempts since FailingSince have failed, and at least two events were affected
// (FailedAgain). Webhooks that are off or on hold are left out. The newest webhook comes first,
// not the first to fail. [WebhookService.WebhookStats] returns when each will be disabled. The
// iterator stops after the first error.
func (s *WebhookService) AllFailing(ctx context.Context) iter.Seq2[Webhook, error] {
	now := s.now()
	return s.allAcross("failing", func(query driver.ListQuery) ([]Webhook, error) { return s.store.FailingWebhooks(ctx, now, query) })
}

// AllOff returns an iterator over the inactive webhooks of all accounts, newest first, with
// OffReason and OffAt. It stops after the first error.
func (s *WebhookService) AllOff(ctx context.Context) iter.Seq2[Webhook, error] {
	return s.allAcross("inactive", func(query driver.ListQuery) ([]Webhook, error) { return s.store.OffWebhooks(ctx, query) })
}

// AllHeld returns an iterator over the webhooks of all accounts that are on hold, newest first. It
// stops after the first error.
func (s *WebhookService) AllHeld(ctx context.Context) iter.Seq2[Webhook, error] {
	return s.allAcross("held", func(query driver.ListQuery) ([]Webhook, error) { return s.store.HeldWebhooks(ctx, query) })
}

// allAcross returns an iterator over webhooks of all accounts. It calls read for each page.
func (s *WebhookService) allAcross(which string, read func(driver.ListQuery) ([]Webhook, error)) iter.Seq2[Webhook, error] {
	return input.Pages(func(after string) ([]Webhook, string, error) {
		page, err := s.list(WebhookQuery{After: after, Limit: pageSize}, which, read)
		return page.Webhooks, page.Next, err
	})
}

// list returns a page of the webhooks that read returns.
func (s *WebhookService) list(query WebhookQuery, which string, read func(driver.ListQuery) ([]Webhook, error)) (WebhookPage, error) {
	size := min(query.Limit, math.MaxInt-1) + 1 // the extra webhook shows whether there is a next page
	if !query.Within.IsZero() {
		size = pageSize
	}
	var page WebhookPage
	for examined, now := 0, s.now(); ; {
		all, err := read(driver.ListQuery{After: query.After, Limit: size})
		if err != nil {
			return WebhookPage{}, fmt.Errorf("list %s webhooks: %w", which, err)
		}
		for i := range all {
			query.After = all[i].ID
			if !query.Within.Covers(all[i].Resources) {
				continue
			}
			if len(page.Webhooks) == query.Limit {
				page.Next = page.Webhooks[query.Limit-1].ID // not the ID of a webhook that the query omits
				return page, nil
			}
			dropExpired(&all[i], now)
			page.Webhooks = append(page.Webhooks, all[i])
		}
		if len(all) < size {
			return page, nil
		}
		if examined += size; examined >= maxExamined {
			page.Next = query.After
			return page, nil
		}
	}
}
