package webhooks

import (
	"context"
	"errors"
	"fmt"

	"github.com/storageapi/storageapi/audit"
)

// DeleteParams says on what condition to delete a webhook.
type DeleteParams struct{ If Condition }

// Delete removes the account's webhook of that id and its pending deliveries, or
// returns [ErrNotFound]. Attempts that this process is making are cut short, that of
// a test event as well: once Delete has returned nil, it sends nothing more to the
// webhook. If ctx ends while it waits for that, the webhook is deleted and Delete
// returns the context's error.
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
			if origin(now.URL) != entry.Target.Name { // the audit entry names it as it is
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
	if errors.Is(err, ErrNotFound) {
		return fmt.Errorf("delete webhook: %w", err)
	}
	if err != nil { // it may have been deleted nevertheless
		return fmt.Errorf("delete webhook: %w", errors.Join(err, s.evict(ctx, account, webhookID)))
	}
	if err := s.evict(ctx, account, webhookID); err != nil {
		return fmt.Errorf("delete webhook: deleted, but an attempt may be under way: %w", err)
	}
	return nil
}

// evict returns when nothing more will be sent to a webhook that was deleted, or
// when ctx is done.
func (s *WebhookService) evict(ctx context.Context, account, webhookID string) error {
	return errors.Join(s.tests.Evict(ctx, account, webhookID), s.dispatcher.evict(ctx, webhookID, ""))
}

// EndDeliveries cuts short the attempts that this process is making for webhooks of the
// account, test events as well, and returns when they have ended, or the error of ctx.
// What was attempted is pending as before, unless the account is gone. It is for hosts that erase an account by
// its store; [storageapi.Handler.Erase] calls it.
func (s *WebhookService) EndDeliveries(ctx context.Context, account string) error {
	return errors.Join(s.tests.EvictAccount(ctx, account), s.dispatcher.evict(ctx, "", account))
}
