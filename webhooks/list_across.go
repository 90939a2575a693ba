package webhooks

import (
	"context"
	"fmt"
	"iter"
	"math"

	"github.com/storageapi/storageapi/internal/input"
)

// The lists of all accounts are for the host's operators: they ask for no account, so they
// are not for the answer to a request of one.

// FailingWebhooks returns a page of the webhooks of all accounts to which attempts fail:
// since then they have all failed, those of two events at least ([Webhook.FailingSince],
// [Webhook.FailedAgain]). Those that are off or on hold are not among them. Newest webhooks
// come first, whenever they began to fail; an empty page is past the end. page.Limit must be
// at least 1. When each will be turned off tells [WebhookService.WebhookStats].
func (s *WebhookService) FailingWebhooks(ctx context.Context, page Page) (WebhookPage, error) {
	now := s.now()
	return s.listAcross(page, "failing", func(page Page) ([]Webhook, error) { return s.store.FailingWebhooks(ctx, now, page) })
}

// OffWebhooks returns a page of the webhooks of all accounts that are not active, for
// [Webhook.OffReason] since [Webhook.OffAt], newest webhooks first; an empty one past the
// end. page.Limit must be at least 1.
func (s *WebhookService) OffWebhooks(ctx context.Context, page Page) (WebhookPage, error) {
	return s.listAcross(page, "inactive", func(page Page) ([]Webhook, error) { return s.store.OffWebhooks(ctx, page) })
}

// AllFailing returns all webhooks of all accounts that FailingWebhooks lists. It ends after
// the first error.
func (s *WebhookService) AllFailing(ctx context.Context) iter.Seq2[Webhook, error] {
	return input.Pages(func(after string) ([]Webhook, string, error) {
		page, err := s.FailingWebhooks(ctx, Page{After: after, Limit: pageSize})
		return page.Webhooks, page.Next, err
	})
}

// AllOff returns all webhooks of all accounts that OffWebhooks lists. It ends after the
// first error.
func (s *WebhookService) AllOff(ctx context.Context) iter.Seq2[Webhook, error] {
	return input.Pages(func(after string) ([]Webhook, string, error) {
		page, err := s.OffWebhooks(ctx, Page{After: after, Limit: pageSize})
		return page.Webhooks, page.Next, err
	})
}

// listAcross returns a page of a list of webhooks of all accounts.
func (s *WebhookService) listAcross(page Page, which string, list func(Page) ([]Webhook, error)) (WebhookPage, error) {
	if page.Limit < 1 {
		return WebhookPage{}, invalid("limit", "must be at least 1")
	}
	limit := page.Limit
	page.Limit = min(limit, math.MaxInt-1) + 1 // the one too many tells that there are more
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
