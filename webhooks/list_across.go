package webhooks

import (
	"context"
	"fmt"
	"iter"
	"math"

	"github.com/storageapi/storageapi/internal/input"
)

// The lists of all accounts are for the host's operators. They check no account, so do not use them
// to answer an account's request.

// FailingWebhooks returns a page of the failing webhooks of all accounts. A webhook is failing if
// all its attempts since [Webhook.FailingSince] failed, for at least two events
// ([Webhook.FailedAgain]). Webhooks that are off or on hold are left out. The order is newest
// webhook first, not first failure; a page past the end is empty. page.Limit must be at least 1.
// [WebhookService.WebhookStats] returns when each will be disabled.
func (s *WebhookService) FailingWebhooks(ctx context.Context, page Page) (WebhookPage, error) {
	now := s.now()
	return s.listAcross(page, "failing", func(page Page) ([]Webhook, error) { return s.store.FailingWebhooks(ctx, now, page) })
}

// OffWebhooks returns a page of the inactive webhooks of all accounts, newest webhooks first, with
// [Webhook.OffReason] and [Webhook.OffAt]; a page past the end is empty. page.Limit must be at
// least 1.
func (s *WebhookService) OffWebhooks(ctx context.Context, page Page) (WebhookPage, error) {
	return s.listAcross(page, "inactive", func(page Page) ([]Webhook, error) { return s.store.OffWebhooks(ctx, page) })
}

// AllFailing returns all webhooks that FailingWebhooks lists. It ends after the first error.
func (s *WebhookService) AllFailing(ctx context.Context) iter.Seq2[Webhook, error] {
	return input.Pages(func(after string) ([]Webhook, string, error) {
		page, err := s.FailingWebhooks(ctx, Page{After: after, Limit: pageSize})
		return page.Webhooks, page.Next, err
	})
}

// AllOff returns all webhooks that OffWebhooks lists. It ends after the first error.
func (s *WebhookService) AllOff(ctx context.Context) iter.Seq2[Webhook, error] {
	return input.Pages(func(after string) ([]Webhook, string, error) {
		page, err := s.OffWebhooks(ctx, Page{After: after, Limit: pageSize})
		return page.Webhooks, page.Next, err
	})
}

// listAcross returns a page of the webhooks that list returns.
func (s *WebhookService) listAcross(page Page, which string, list func(Page) ([]Webhook, error)) (WebhookPage, error) {
	if page.Limit < 1 {
		return WebhookPage{}, invalid("limit", "must be at least 1")
	}
	limit := page.Limit
	page.Limit = min(limit, math.MaxInt-1) + 1 // one more shows whether there is a next page
	all, err := list(page)
	if err != nil {
		return WebhookPage{}, fmt.Errorf("list %s webhooks: %w", which, err)
	}
	now := s.now()
	for i := range all {
		all[i].dropExpired(now)
	}
	if len(all) <= limit {
		return WebhookPage{Webhooks: all}, nil
	}
	return WebhookPage{Webhooks: all[:limit], Next: all[limit-1].ID}, nil
}
