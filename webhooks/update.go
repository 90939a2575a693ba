package webhooks

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/webhooks/internal/outbound"
)

// UpdateParams says what to change of a webhook; what is nil stays as it is. The
// rules are those of [CreateParams].
type UpdateParams struct {
	URL              *string
	Events           []EventType // in place of those of before
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
//   - URL: what is owed goes to the new one when it is due, at once also if the old
//     one was down, at first one attempt at a time. Failing begins anew, and what comes of attempts at the old one changes nothing of the
//     webhook, not even 410 Gone. One that is off stays off.
//   - Events: they decide about what is published from now on. What is owed, or
//     recovered, is sent even if its type is not among them any more: whoever may
//     change where it goes should be good enough for [Webhook.PastEvents], too.
//   - Active: while it is false, what is owed waits, and what is published is
//     [Skipped], to be recovered if wanted. Once it is true, what is owed goes on,
//     at once also if the receiver was down; failing begins anew and there is no [OffReason] any more.
//   - BalanceThreshold: if it is above the balance that was reported, and the webhook
//     was not told yet, it is told at once.
func (s *WebhookService) Update(ctx context.Context, account, webhookID string, params UpdateParams) (Webhook, error) {
	params, err := params.check(s.guard)
	if err != nil {
		return Webhook{}, err
	}
	webhook, err := s.change(ctx, account, webhookID, params.If, params.apply)
	if err != nil {
		return Webhook{}, fmt.Errorf("update webhook: %w", err)
	}
	if turned := params.Active != nil || params.URL != nil; turned && webhook.Active {
		s.dispatcher.retrust(ctx, account, webhookID)
	}
	s.balanceMayBeLow(ctx, webhook)
	return webhook, nil
}

// RotateParams says how to rotate a webhook's secret.
type RotateParams struct {
	// Grace is how long the secret of before goes on signing beside the new one, 0
	// or more, counted to the millisecond.
	Grace time.Duration

	If Condition
}

// RotateSecret gives the account's webhook a new secret and returns the webhook with
// it; or it returns [ErrNotFound]. The secret of before signs as well for the grace
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

func (p UpdateParams) check(guard *outbound.Guard) (UpdateParams, error) {
	if p.URL != nil {
		if err := checkURL(*p.URL, guard); err != nil {
			return p, err
		}
	}
	if p.Events == nil {
		return p, nil
	}
	var err error
	p.Events, err = checkEvents(p.Events)
	return p, err
}

func (p *UpdateParams) apply(w *Webhook) {
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
		w.Active, w.OffReason = *p.Active, ""
		w.EndFailing() // it begins anew
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
