package webhooks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/webhooks/internal/outbound"
)

// A Condition decides whether a webhook may be changed from what it is to what it
// would be, which is the zero Webhook for a deletion: an error is returned to whoever
// wanted the change, wrapped, and nothing is changed. It must leave both as they are,
// may take its time and may call the service. A nil Condition always holds.
//
// What it was asked about is what is changed: if something else changes the webhook
// before that, it is asked again.
type Condition func(before, after Webhook) error

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
		s.retrust(ctx, account, webhookID)
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

// errChanged says that a webhook is not what the condition was asked about.
var errChanged = errors.New("the webhook was changed by somebody else meanwhile")

// change changes a webhook on a condition.
func (s *WebhookService) change(ctx context.Context, account, webhookID string, condition Condition, apply func(*Webhook)) (Webhook, error) {
	now := s.now()
	for {
		check, err := s.ask(ctx, account, webhookID, condition, apply)
		if err != nil {
			return Webhook{}, err
		}
		changed, err := s.store.UpdateWebhook(ctx, account, webhookID, func(w *Webhook) error {
			if check != nil {
				if err := check(*w); err != nil {
					return err
				}
			}
			apply(w)
			w.dropExpired(now)
			return nil
		})
		if errors.Is(err, errChanged) {
			continue
		}
		if !errors.Is(err, ErrNotFound) {
			s.dispatcher.wake()
		}
		return changed, err
	}
}

// ask asks the condition about a change of a webhook and returns its error. Since it
// would hold up everybody else it is not asked within the store's step; there check,
// unless it is nil, tells by errChanged if it was asked about something else.
func (s *WebhookService) ask(ctx context.Context, account, webhookID string, condition Condition, apply func(*Webhook)) (check func(Webhook) error, err error) {
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
		w.Active == other.Active && w.OffReason == other.OffReason && w.BalanceThreshold == other.BalanceThreshold &&
		w.Secret.Equal(other.Secret) && w.PreviousSecret.Equal(other.PreviousSecret) &&
		w.PreviousSecretExpiresAt.Equal(other.PreviousSecretExpiresAt)
}

// CheckUpdate returns params as Update would apply them, or the [*ValidationError]
// that it would refuse them with.
func (s *WebhookService) CheckUpdate(params UpdateParams) (UpdateParams, error) {
	return params.check(s.guard)
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
