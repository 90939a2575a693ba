package webhooks

import (
	"slices"
	"time"

	"github.com/storageapi/storageapi/signing"
)

// A Webhook is an endpoint that receives an account's events.
type Webhook struct {
	ID      string // "wh_" and a ULID; later webhooks sort after earlier ones
	Account string // who it belongs to
	URL     string // https

	// Events are the subscribed event types, at least one, in the caller's
	// order without duplicates.
	Events []EventType

	// PastEvents are types that it was subscribed to before and is no more,
	// without duplicates: what it is owed, or is sent again, may be of them too.
	PastEvents []EventType

	WebhookHealth

	// Version counts the stored changes of the webhook: 1 at its creation. A store sets it;
	// changes made by a caller are ignored. An import begins at 1.
	Version uint64

	// Held tells that the webhook is on hold: the store was restored from a backup, and
	// what was pending then may have been sent since. Nothing is sent to it, also not what
	// is published meanwhile, which is pending like all else. [WebhookService.Release]
	// ends it.
	Held bool

	// BalanceThreshold is for balance.low events; zero: none of its own.
	BalanceThreshold Amount

	Secret    signing.Secret // signs what is sent
	CreatedAt time.Time      // UTC, to the millisecond

	// PreviousSecret, from before the last rotation, signs as well until
	// PreviousSecretExpiresAt; zero if there is none.
	PreviousSecret          signing.Secret
	PreviousSecretExpiresAt time.Time // UTC, to the millisecond
}

// A WebhookHealth is what the results of attempts change of a [Webhook].
type WebhookHealth struct {
	// Active tells whether events are sent. The pending deliveries of an inactive webhook
	// wait until it is active again. Events published meanwhile are [Skipped]: activating it
	// does not send them, [WebhookService.Recover] does.
	Active bool

	// OffReason tells why the webhook was turned off; empty if it is active or
	// was turned off on request.
	OffReason OffReason

	// OffAt is when the webhook was turned off, UTC, to the millisecond; zero if it is active. A
	// webhook that answered 410 Gone was turned off by the attempt that began at OffAt.
	OffAt time.Time

	// ProvenAt is when the first attempt began that succeeded at this URL; zero if none
	// has.
	ProvenAt time.Time

	// FailingSince is when the first of its attempts began that have all failed
	// since; zero if the last one succeeded.
	FailingSince time.Time

	// FailingEvent is the id of the event of that attempt, and FailedAgain tells that
	// another event has failed since, too.
	FailingEvent string
	FailedAgain  bool

	// WarnedAt is when the host was told that the webhook will be turned off if
	// it goes on failing; zero if it was not.
	WarnedAt time.Time
}

// An OffReason is why a webhook was turned off.
type OffReason string

// The reasons.
const (
	OffGone    OffReason = "gone"    // its receiver answered 410 Gone
	OffFailing OffReason = "failing" // its attempts have all failed for [RetryPolicy.DisableAfter], those of two events at least
)

// NoteFailure notes a failed attempt to send the webhook the event, begun then, as a
// [Store] keeps it, and reports whether that changes anything.
func (w *WebhookHealth) NoteFailure(eventID string, at time.Time) (changed bool) {
	switch {
	case w.FailingSince.IsZero():
		w.FailingSince, w.FailingEvent = at, eventID
	case w.FailingEvent == "":
		w.FailingEvent = eventID
	case w.FailedAgain || w.FailingEvent == eventID:
		return false
	default:
		w.FailedAgain = true
	}
	return true
}

// EndFailing forgets that attempts failed, and that the host was warned of it.
func (w *WebhookHealth) EndFailing() {
	w.FailingSince, w.FailingEvent, w.FailedAgain, w.WarnedAt = time.Time{}, "", false, time.Time{}
}

// After returns the health after an attempt to send the webhook the event. A delivery ends the failing, a failure of the receiver begins or
// prolongs it. A reason in off turns the webhook off as of the attempt, unless it is off.
func (h WebhookHealth) After(outcome Outcome, attempt *Attempt, eventID string, off OffReason) WebhookHealth {
	at := attempt.StartedAt.UTC().Truncate(time.Millisecond)
	switch {
	case outcome == Deliver:
		h.EndFailing()
		if h.ProvenAt.IsZero() {
			h.ProvenAt = at
		}
	case !attempt.Class.ours():
		h.NoteFailure(eventID, at)
	}
	if off != "" && h.Active {
		h.Active, h.OffReason, h.OffAt = false, off, at
	}
	return h
}

// previousSecretAt returns the previous secret if it signs at that time, or else
// the zero Secret.
func (w *Webhook) previousSecretAt(now time.Time) signing.Secret {
	if now.Before(w.PreviousSecretExpiresAt) {
		return w.PreviousSecret
	}
	return signing.Secret{}
}

// Proven reports whether the receiver has shown that it takes events, and nothing has
// shown otherwise since: an attempt succeeded, and the last one did. While slots are
// short, unproven webhooks have a part of them.
func (w *WebhookHealth) Proven() bool { return !w.ProvenAt.IsZero() && w.FailingSince.IsZero() }

// Claimable reports whether attempts may be made for the webhook: it is active and not on
// hold.
func (w *Webhook) Claimable() bool { return w.Active && !w.Held }

// clone returns a copy that shares nothing with w: that of a task is shared.
func (w *Webhook) clone() Webhook {
	c := *w
	c.Events, c.PastEvents = slices.Clone(w.Events), slices.Clone(w.PastEvents)
	return c
}

// dropExpired removes the previous secret once it does not sign any more.
func (w *Webhook) dropExpired(now time.Time) {
	if w.previousSecretAt(now).IsZero() {
		w.PreviousSecret, w.PreviousSecretExpiresAt = signing.Secret{}, time.Time{}
	}
}

// Subscribes reports whether the webhook is to receive events of the type now:
// it is active and subscribed.
func (w *Webhook) Subscribes(t EventType) bool {
	return w.Active && slices.Contains(w.Events, t)
}
