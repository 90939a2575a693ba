package webhooks

import (
	"context"
	"errors"
	"slices"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/input"
)

// A Condition decides whether a webhook may be changed from what it is to what it would
// be: before is the zero Webhook for a creation, after is the zero Webhook for a deletion.
// If it returns an error nothing is changed, and the caller gets that error, wrapped. A
// nil Condition always holds. Both authority and compare-and-swap go through it.
//
// It is asked once the parameters were found valid, and outside of the store's step, so
// it may take its time and may call the service; it must leave both as they are. What it
// was asked about is what is changed: if something else changes the webhook meanwhile, it
// is asked again.
type Condition func(before, after Webhook) error

func (c Condition) ask(before, after Webhook) error {
	if c == nil {
		return nil
	}
	return c(before, after)
}

// errChanged says that a webhook is not what the condition was asked about.
var errChanged = errors.New("the webhook was changed meanwhile")

// change changes a webhook on a condition.
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
			old := w.clone()
			apply(w)
			stored = s.entries.change(ctx, &old, w)
			*entry = stored
			w.dropExpired(now)
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

// ask asks the condition about a change of a webhook by apply, and returns its error.
// Within the store's step it would hold up all others, so there only check, unless it is
// nil, is called: it returns errChanged if the condition was asked about something else.
func (s *WebhookService) ask(ctx context.Context, account, webhookID string, condition Condition, apply func(*Webhook)) (check func(Webhook) error, err error) {
	if !input.ID(webhookID) {
		return nil, ErrNotFound
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
	before.dropExpired(now)
	after.dropExpired(now)
	if err := condition(before, after); err != nil {
		return nil, err
	}
	return func(w Webhook) error {
		if !w.equalSettings(&found) {
			return errChanged
		}
		return nil
	}, nil
}

// equalSettings reports whether two states of a webhook differ in nothing but what
// attempts tell of its receiver.
func (w *Webhook) equalSettings(other *Webhook) bool {
	return w.URL == other.URL && slices.Equal(w.Events, other.Events) && slices.Equal(w.PastEvents, other.PastEvents) &&
		w.Active == other.Active && w.Held == other.Held && w.OffReason == other.OffReason && w.BalanceThreshold == other.BalanceThreshold &&
		w.Secret.Equal(other.Secret) && w.PreviousSecret.Equal(other.PreviousSecret) &&
		w.PreviousSecretExpiresAt.Equal(other.PreviousSecretExpiresAt)
}
