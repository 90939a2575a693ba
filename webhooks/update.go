package webhooks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/storageapi/storageapi/signing"
)

// UpdateParams says what to change of a webhook; what is nil stays as it is. The
// rules are those of [CreateParams].
type UpdateParams struct {
	URL              *string
	Events           []EventType // in place of those of before; also ones that it has and that are not declared any more
	Active           *bool
	BalanceThreshold *Amount // zero: none any more

	If Condition
}

// Update changes the account's webhook, all at once, and returns what it is now; or it
// returns [ErrNotFound]. Changes at the same moment do not undo each other.
//
// Attempts that have begun go on as they are, and count; all later ones are made as
// the change has it, also of what was published before:
//
//   - URL: pending deliveries go to the new one when they are due, one attempt at a time
//     at first; if the old one was down, the first is made at once. The webhook counts as
//     not failing. Results of attempts at the old URL change nothing of the webhook, not
//     even 410 Gone. One that is off stays off.
//   - Events: they decide about what is published from now on. Pending and recovered
//     deliveries are sent even if their type is not among them any more. An If that
//     decides who may change the URL should therefore cover [Webhook.PastEvents], too.
//   - Active: while it is false, pending deliveries wait, and what is published is
//     [Skipped], to be recovered if wanted. Once it is true, they are sent again, the
//     first at once; the webhook counts as not failing, and its [OffReason] is cleared.
//   - BalanceThreshold: if the last reported balance is below it, and the webhook has not
//     been notified of that, a balance.low event is sent immediately; once in five seconds at
//     most, however often the threshold is changed.
func (s *WebhookService) Update(ctx context.Context, account, webhookID string, params UpdateParams) (Webhook, error) {
	params, err := s.checkUpdate(ctx, account, webhookID, params)
	if err != nil {
		return Webhook{}, err
	}
	webhook, err := s.change(ctx, account, webhookID, params.If, func(w *Webhook) { params.apply(w, s.now()) })
	if err != nil {
		return Webhook{}, fmt.Errorf("update webhook: %w", err)
	}
	if turned := params.Active != nil || params.URL != nil; turned && webhook.Claimable() {
		s.dispatcher.retrust(ctx, account, webhookID)
	}
	s.balanceMayBeLow(ctx, webhook)
	return webhook, nil
}

// RotateParams says how to rotate a webhook's secret.
type RotateParams struct {
	// Grace is how long the previous secret signs as well, 0 or more, counted to the
	// millisecond. Choose it longer than receivers take to learn the new secret.
	Grace time.Duration

	If Condition
}

// RotateSecret gives the account's webhook a new secret and returns the webhook with
// it; or it returns [ErrNotFound]. The previous secret signs as well for the grace
// period; one from an earlier rotation ends now, so that there are at most two. Which
// secrets sign is decided as an attempt begins, also of what was published before.
func (s *WebhookService) RotateSecret(ctx context.Context, account, webhookID string, params RotateParams) (Webhook, error) {
	if params.Grace < 0 {
		return Webhook{}, invalid("Grace", "must not be negative")
	}
	secret := signing.NewSecret()
	until := s.now().UTC().Add(params.Grace).Truncate(time.Millisecond)
	webhook, err := s.change(ctx, account, webhookID, params.If, func(w *Webhook) {
		w.PreviousSecret, w.PreviousSecretExpiresAt, w.Secret = w.Secret, until, secret
	})
	if err != nil {
		return Webhook{}, fmt.Errorf("rotate secret of webhook: %w", err)
	}
	return webhook, nil
}

// checkUpdate returns params that were checked, their events without duplicates.
func (s *WebhookService) checkUpdate(ctx context.Context, account, webhookID string, p UpdateParams) (UpdateParams, error) {
	if p.URL != nil {
		if err := checkURL(*p.URL, s.guard); err != nil {
			return p, err
		}
	}
	if p.Events == nil {
		return p, nil
	}
	events, err := s.events.check(p.Events, nil)
	if err != nil {
		before, missing := s.Get(ctx, account, webhookID)
		if missing != nil && !errors.Is(missing, ErrNotFound) {
			return p, missing
		}
		events, err = s.events.check(p.Events, before.Events)
	}
	p.Events = events
	return p, err
}

func (p *UpdateParams) apply(w *Webhook, now time.Time) {
	if p.URL != nil && *p.URL != w.URL {
		w.URL = *p.URL
		w.ProvenAt = time.Time{} // of another receiver
		w.EndFailing()
	}
	if p.Events != nil {
		w.PastEvents, w.Events = past(w, p.Events), slices.Clone(p.Events)
	}
	if p.BalanceThreshold != nil {
		w.BalanceThreshold = *p.BalanceThreshold
	}
	if p.Active != nil && *p.Active != w.Active {
		w.Active, w.OffReason, w.OffAt = *p.Active, "", time.Time{}
		if !w.Active {
			w.OffAt = now.UTC().Truncate(time.Millisecond)
		}
		w.EndFailing()
	}
}

// past returns the webhook's PastEvents once it is subscribed to these events.
func past(w *Webhook, events []EventType) []EventType {
	var all []EventType
	for _, t := range slices.Concat(w.PastEvents, w.Events) {
		if !slices.Contains(events, t) && !slices.Contains(all, t) {
			all = append(all, t)
		}
	}
	return all
}
