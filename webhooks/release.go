package webhooks

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/store/driver"
)

// Release ends the hold of the account's webhook, see [Webhook.Held], and returns the webhook, or
// [apierr.ErrNotFound]. Its pending deliveries are sent from now on, within the usual limits, and
// the webhook counts as not failing. If the webhook is not on hold, nothing changes. After any
// other error the hold may or may not have ended: call Release again.
func (s *WebhookService) Release(ctx context.Context, account, webhookID string) (Webhook, error) {
	released := false
	webhook, err := s.change(ctx, account, webhookID, nil, func(w *Webhook) {
		if released = w.Held; released {
			w.Held = false
			w.EndFailing()
		}
	})
	if err != nil {
		return Webhook{}, fmt.Errorf("release webhook: %w", err)
	}
	if released && webhook.Active {
		s.dispatcher.retrust(ctx, account, webhookID)
	}
	return webhook, nil
}

// releaseStep is the number of webhooks that ReleaseAll releases concurrently: enough to share
// commits, and few enough not to block other calls for long.
const releaseStep = 64

// ReleaseAll releases all webhooks of all accounts that are on hold, like
// [WebhookService.Release], and returns the number of webhooks released. If it returns an error,
// or ctx ends, the webhooks released so far stay released; call ReleaseAll again for the rest.
func (s *WebhookService) ReleaseAll(ctx context.Context) (released int, err error) {
	query := WebhookQuery{Limit: releaseStep}
	for {
		held, err := s.list(query, "held", func(query driver.ListQuery) ([]Webhook, error) { return s.store.HeldWebhooks(ctx, query) })
		if err != nil {
			return released, err
		}
		var group sync.WaitGroup
		failed := make([]error, len(held.Webhooks))
		for i := range held.Webhooks {
			group.Go(func() {
				_, failed[i] = s.Release(ctx, held.Webhooks[i].Account, held.Webhooks[i].ID)
			})
		}
		group.Wait()
		for _, err := range failed {
			if err == nil {
				released++
			} else if !errors.Is(err, apierr.ErrNotFound) { // ErrNotFound: the webhook was deleted meanwhile
				return released, err
			}
		}
		if query.After = held.Next; query.After == "" {
			return released, nil
		}
	}
}
