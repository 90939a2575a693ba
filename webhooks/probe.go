package webhooks

import "context"

// probe has an attempt made at what is pending for the webhook, by any process, though
// its receiver is down. What was asked for does not fail if that cannot be noted: the
// pause ends by itself, within some minute.
func (s *WebhookService) probe(ctx context.Context, account, webhookID string) {
	if err := s.store.Probe(ctx, account, webhookID); err != nil && ctx.Err() == nil {
		s.logger.Warn("storageapi: webhook store failed", "step", "probe", "account", account, "webhook", webhookID, "error", err)
	}
	s.dispatcher.wake()
}

// retrust is probe if there is reason to believe that the webhook is up: what was known
// of its receiver counts for little from now on.
func (s *WebhookService) retrust(ctx context.Context, account, webhookID string) {
	s.probe(ctx, account, webhookID) // first: it is to be the next attempt
	s.dispatcher.limiter.Trust(webhookID)
	s.dispatcher.wake()
}
