package webhooks

import (
	"context"
	"errors"
	"fmt"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
)

// DeleteParams holds the condition for deleting a webhook.
type DeleteParams struct{ If Condition }

// Delete removes the account's webhook with the given ID and its pending deliveries, or returns
// [apierr.ErrNotFound]. It cancels this process's running attempts for the webhook, including test
// events, and waits for them: once Delete has returned nil, this process sends no more requests to
// the webhook. If ctx ends during the wait, the webhook is still deleted, and Delete returns the
// context's error.
func (s *WebhookService) Delete(ctx context.Context, account, webhookID string, params DeleteParams) error {
	var entry audit.Entry
	err := errChanged
	for errors.Is(err, errChanged) {
		check, refused := s.ask(ctx, account, webhookID, params.If, func(w *Webhook) { *w = Webhook{} })
		if refused != nil {
			return fmt.Errorf("delete webhook: %w", refused)
		}
		webhook, missing := s.store.WebhookByID(ctx, account, webhookID)
		if missing != nil {
			return fmt.Errorf("delete webhook: %w", missing)
		}
		entry = s.entries.of(ctx, audit.WebhookDeleted, &webhook)
		err = s.store.DeleteWebhook(ctx, account, webhookID, func(now Webhook) error {
			if origin(now.URL) != entry.Target.Name { // the audit entry must have the current origin
				return errChanged
			}
			if check == nil {
				return nil
			}
			return check(now)
		}, entry)
	}
	if err == nil {
		s.dispatcher.reporter.Changed(&entry)
	}
	if errors.Is(err, apierr.ErrNotFound) {
		return fmt.Errorf("delete webhook: %w", err)
	}
	if err != nil { // the webhook may have been deleted nevertheless
		return fmt.Errorf("delete webhook: %w", errors.Join(err, s.evict(ctx, account, webhookID)))
	}
	if err := s.evict(ctx, account, webhookID); err != nil {
		return fmt.Errorf("delete webhook: deleted, but an attempt may be in flight: %w", err)
	}
	return nil
}

// evict waits until no more requests will be sent to a deleted webhook, or until ctx is done.
func (s *WebhookService) evict(ctx context.Context, account, webhookID string) error {
	return errors.Join(s.tests.Evict(ctx, account, webhookID), s.dispatcher.evict(ctx, webhookID, ""))
}

// EndDeliveries cancels this process's running attempts for webhooks of the account, including
// test events, and waits until they have ended. If ctx ends first, it returns the error of ctx.
// The deliveries stay pending, unless the account has been erased. It is for hosts that erase an
// account through its store; [storageapi.Handler.Erase] calls it.
func (s *WebhookService) EndDeliveries(ctx context.Context, account string) error {
	if account == "" { // Evict would take it for all accounts
		return nil
	}
	return errors.Join(s.tests.Evict(ctx, account, ""), s.dispatcher.evict(ctx, "", account))
}
