package webhooks

import (
	"context"
	"errors"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/fields"
	"github.com/storageapi/storageapi/internal/input"
	"github.com/storageapi/storageapi/internal/listed"
)

// A Condition decides whether a webhook may change from before to after. before is the zero
// Webhook for a creation; after is the zero Webhook for a deletion. If it returns an error,
// nothing changes, and the caller gets that error, wrapped. A nil Condition allows every change.
// Use it for authorization and for compare-and-swap.
//
// It runs after the parameters are validated and outside the store's transaction, so it may be
// slow and may call the service. It must not modify before or after. If the webhook changes
// concurrently, the Condition is called again with the new state before the change is stored.
type Condition func(before, after Webhook) error

func (c Condition) ask(before, after Webhook) error {
	if c == nil {
		return nil
	}
	return c(before, after)
}

// errChanged reports that the webhook has changed since the condition was evaluated.
var errChanged = errors.New("the webhook was changed concurrently")

// change applies a change to a webhook if the condition allows it.
func (s *WebhookService) change(ctx context.Context, account, webhookID string, condition Condition, apply func(*Webhook)) (Webhook, error) {
	now := s.now()
	var stored audit.Entry
	for {
		check, err := s.ask(ctx, account, webhookID, condition, apply)
		if err != nil {
			return Webhook{}, err
		}
		changed, err := s.store.UpdateWebhook(ctx, account, webhookID, func(w *Webhook, entry *audit.Entry) error {
			if check != nil {
				if err := check(*w); err != nil {
					return err
				}
			}
			old := *w
			fields.Copy((*listed.Webhook)(&old))
			apply(w)
			if !fields.Equal((*listed.Webhook)(&old), (*listed.Webhook)(w), fields.Value) {
				w.SecretsVersion = max(w.SecretsVersion+1, uint64(now.UnixMilli())) // not a version from before a restore
			}
			stored = s.entries.change(ctx, &old, w)
			*entry = stored
			dropExpired(w, now)
			return nil
		})
		if errors.Is(err, errChanged) {
			continue
		}
		if err == nil {
			s.dispatcher.reporter.Changed(&stored)
		}
		return changed, err
	}
}

// ask evaluates the condition for the change that apply makes, and returns the condition's error.
// Call it before the store's transaction, inside which the condition would block other calls. The
// transaction must call check if it is not nil; check returns errChanged if the webhook is no
// longer in the state that the condition saw.
func (s *WebhookService) ask(ctx context.Context, account, webhookID string, condition Condition, apply func(*Webhook)) (check func(Webhook) error, err error) {
	if !input.ID(webhookID) {
		return nil, apierr.ErrNotFound
	}
	if condition == nil {
		return nil, nil
	}
	found, err := s.store.WebhookByID(ctx, account, webhookID)
	if err != nil {
		return nil, err
	}
	now, before, after := s.now(), found, found
	apply(&after)
	dropExpired(&before, now)
	dropExpired(&after, now)
	if err := condition(before, after); err != nil {
		return nil, err
	}
	return func(w Webhook) error {
		if !fields.Equal((*listed.Webhook)(&w), (*listed.Webhook)(&found), fields.Conditioned) {
			return errChanged
		}
		return nil
	}, nil
}
