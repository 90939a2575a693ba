package webhooks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/internal/input"
	"github.com/storageapi/storageapi/signing"
)

// UpdateParams describes changes to a webhook; nil fields stay unchanged. The rules of
// [CreateParams] apply.
type UpdateParams struct {
	URL       *string
	Events    []EventType // replaces all types; may keep types that are no longer declared
	Active    *bool
	Threshold *uint64   // if zero, remove the threshold
	Resources *[]string // if it points to nil, remove the limit

	// PausedUntil pauses the webhook until this time, or without an end if it is [NoEnd]. The zero time
	// ends a pause.
	PausedUntil *time.Time

	// Headers replace the webhook's headers with the same names; a Header without a Value removes one.
	// The other headers stay, except that a change of the URL's host or port removes secret headers
	// that are not given again.
	Headers []Header

	Signatures []signing.Scheme // replaces all schemes

	If Condition
}

// Update changes the account's webhook in one transaction, and returns its new state, or
// [apierr.ErrNotFound]. Concurrent changes do not undo each other.
//
// Running attempts continue with the old settings, and their results are recorded. All later
// attempts use the new settings, even for events published earlier:
//
//   - URL: pending deliveries go to the new URL when they are due, one attempt at a time at first;
//     if the old receiver was down, the first attempt is made at once. The webhook no longer
//     counts as failing. Results of attempts at the old URL do not affect the webhook, not even
//     410 Gone. An inactive webhook stays inactive.
//   - Events: the types apply to events published from now on. Pending and recovered deliveries
//     are sent even if their type is removed. A Condition that decides who may change the URL must
//     therefore also check [Webhook.PastEvents]. Setting [AllEvents] again adds the types whose scope
//     was not required before.
//   - Resources: they apply to all later attempts. Pending deliveries of events that the webhook no
//     longer gets end as [Dead], with an attempt of [ClassResource].
//   - Active: while it is false, pending deliveries wait, and new events are [Skipped]; they can
//     be recovered later. When it becomes true, pending deliveries are sent again, the first at
//     once. The webhook no longer counts as failing, and its [OffReason] is cleared.
//   - PausedUntil: until then, pending deliveries and new events wait, unless their retention ends
//     first. Then they are sent, even if the service was not running when the pause ended. The
//     webhook no longer counts as failing, and attempts that fail during the pause do not count.
//     Pauses end by [Config.Now] of the process that delivers. The hold of a restored webhook and
//     Active are independent of a pause.
func (s *WebhookService) Update(ctx context.Context, account, webhookID string, params UpdateParams) (Webhook, error) {
	params, err := s.checkUpdate(ctx, account, webhookID, params)
	if err != nil {
		return Webhook{}, err
	}
	if len(params.Headers) > 0 {
		params.If = withHeaderLimits(params.If)
	}
	webhook, err := s.change(ctx, account, webhookID, params.If, func(w *Webhook) {
		params.apply(w, s.now())
		if params.Events != nil {
			s.events.subscribe(w, params.Events)
		}
	})
	if err != nil {
		return Webhook{}, fmt.Errorf("update webhook: %w", err)
	}
	if turned := params.Active != nil || params.URL != nil || params.PausedUntil != nil; turned && webhook.Claimable() && webhook.PausedUntil.IsZero() {
		s.dispatcher.retrust(ctx, account, webhookID)
	}
	s.changed(ctx, webhook)
	return webhook, nil
}

// RotateParams describes the rotation of a webhook's secret.
type RotateParams struct {
	// Grace is how long requests are also signed with the previous secret, 0 or more, with
	// millisecond precision. Choose a longer time than receivers need to switch to the new secret.
	Grace time.Duration

	If Condition
}

// RotateSecret gives the account's webhook a new secret and returns the updated webhook, or
// [apierr.ErrNotFound]. During the grace period, requests are also signed with the previous
// secret. A secret from an earlier rotation stops signing now, so at most two secrets sign. The
// secrets for an attempt are chosen when it begins, even if its event was published earlier.
func (s *WebhookService) RotateSecret(ctx context.Context, account, webhookID string, params RotateParams) (Webhook, error) {
	if params.Grace < 0 {
		return Webhook{}, input.Invalid("Grace", "must not be negative")
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

// checkUpdate returns the validated params, with duplicate events removed.
func (s *WebhookService) checkUpdate(ctx context.Context, account, webhookID string, p UpdateParams) (UpdateParams, error) {
	var badURL, badEvents error
	if p.URL != nil {
		badURL = checkURL(*p.URL, s.guard)
	}
	if p.Events != nil {
		var events []EventType
		if events, badEvents = s.events.check(p.Events, nil); badEvents != nil {
			before, missing := s.Get(ctx, account, webhookID)
			if missing != nil && !errors.Is(missing, apierr.ErrNotFound) {
				return p, missing
			}
			events, badEvents = s.events.check(p.Events, before.Events)
		}
		p.Events = events
	}
	var badResources error
	if p.Resources != nil {
		_, badResources = parseResources(*p.Resources)
	}
	var badPause, badHeaders error
	if p.PausedUntil != nil {
		until := p.PausedUntil.UTC().Truncate(time.Millisecond)
		if !until.IsZero() && !until.After(s.now()) || until.After(NoEnd) {
			badPause = input.Invalid("pausedUntil", "must be in the future, and before the year 10000")
		}
		p.PausedUntil = &until
	}
	p.Headers, badHeaders = s.checkHeaders(p.Headers, true)
	var badSignatures error
	if p.Signatures != nil {
		_, badSignatures = storedSignatures(p.Signatures)
	}
	return p, input.JoinInvalid(badURL, badEvents, badResources, badPause, badHeaders, badSignatures)
}

func (p *UpdateParams) apply(w *Webhook, now time.Time) {
	if p.URL != nil && *p.URL != w.URL {
		if origin(*p.URL) != origin(w.URL) { // another receiver must not get the secret headers
			w.Headers = slices.DeleteFunc(slices.Clone(w.Headers), func(h Header) bool { return h.Secret })
		}
		w.URL = *p.URL
		w.ProvenAt = time.Time{} // attempts succeeded only at the old receiver
		w.EndFailing()
	}
	if p.Resources != nil {
		w.Resources, _ = parseResources(*p.Resources)
	}
	if p.Threshold != nil {
		w.Threshold = *p.Threshold
	}
	if len(p.Headers) > 0 {
		w.Headers = changeHeaders(w.Headers, p.Headers)
	}
	if p.Signatures != nil {
		w.Signatures, _ = storedSignatures(p.Signatures)
	}
	if p.PausedUntil != nil && (w.Paused(now) || !p.PausedUntil.IsZero()) {
		w.PausedUntil = *p.PausedUntil
		w.EndFailing()
	}
	if p.Active != nil && *p.Active != w.Active {
		w.Active, w.OffReason, w.OffAt = *p.Active, "", time.Time{}
		if !w.Active {
			w.OffAt = now.UTC().Truncate(time.Millisecond)
		}
		w.EndFailing()
	}
}
