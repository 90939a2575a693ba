package driver

import (
	"slices"
	"time"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/signing"
)

// A Webhook is an endpoint that receives an account's events. Package internal/listed lists its
// fields.
type Webhook struct {
	ID      string // "wh_" and a ULID; later webhooks have greater IDs
	Account string // the account that owns the webhook
	URL     string // https

	// Events are the subscribed event types, at least one, in the caller's order without
	// duplicates; or only [AllEvents].
	Events []EventType

	// EventScopes are the scopes of all types that were declared when Events was set to
	// [AllEvents]. They are kept when Events changes, because pending deliveries may have these
	// types.
	EventScopes []scopes.Scope

	// PastEvents are the event types from which the webhook has unsubscribed, without duplicates.
	// Pending and recovered deliveries of the webhook may have these types.
	PastEvents []EventType

	// Resources limits the webhook to events of these resources; zero means no limit. A limited
	// webhook gets no events without a resource.
	Resources auth.Resources

	WebhookHealth

	// Version is 1 at creation and counts up with each stored change. The store sets it and ignores
	// values set by callers. An imported webhook begins at 1.
	Version uint64

	// Held reports whether the webhook is on hold: the store was restored from a backup, and
	// deliveries that were pending in the backup may have been sent since. The webhook gets no
	// deliveries; new events become pending as usual. webhooks.WebhookService.Release ends the
	// hold.
	Held bool

	// PausedUntil is when the webhook's pause ends, UTC, to the millisecond; zero if it has no pause.
	// Until then no attempts begin, and new events become pending as usual. Stores report, load and
	// list a paused webhook like any other: the service ends pauses, without changing the webhook.
	PausedUntil time.Time

	// Threshold is a setting for publishers that choose single webhooks for an event, such as
	// package alerts, which documents its meaning; zero means none.
	Threshold uint64

	// Headers are sent with each request: at most 10, with different names, in the order of the
	// names.
	Headers []Header

	// Signatures are the schemes that sign requests, in the order of their names; nil means only
	// [signing.V1].
	Signatures []signing.Scheme

	Secret    signing.Secret // signs requests
	CreatedAt time.Time      // UTC, to the millisecond

	// PreviousSecret is the secret before the last rotation. Requests are also signed with it until
	// PreviousSecretExpiresAt. Zero if there is none.
	PreviousSecret          signing.Secret
	PreviousSecretExpiresAt time.Time // UTC, to the millisecond

	// SecretsVersion grows with each change of Secret and of the secret Headers. ETags contain it in
	// place of the secrets, which could be guessed from a hash.
	SecretsVersion uint64
}

// A WebhookHealth is the part of a [Webhook] that changes with the results of attempts.
type WebhookHealth struct {
	// Active reports whether events are sent. The pending deliveries of an inactive webhook wait
	// until it is active again. Events published while it is inactive are [Skipped]: activating it
	// does not send them, a recovery does.
	Active bool

	// OffReason is why the webhook was disabled; empty if it is active or was disabled on request.
	OffReason OffReason

	// OffAt is when the webhook was disabled, UTC, to the millisecond; zero if it is active. After
	// a 410 Gone it is the start of that attempt.
	OffAt time.Time

	// ProvenAt is the start of the first successful attempt at this URL; zero if there is none.
	ProvenAt time.Time

	// FailingSince is the start of the first attempt in the current run of failures; zero if the
	// last attempt succeeded.
	FailingSince time.Time

	// FailingEvent is the ID of the event of that first attempt. FailedAgain reports whether
	// another event has also failed since.
	FailingEvent string
	FailedAgain  bool

	// WarnedAt is when the host was warned that the webhook will be disabled if it keeps failing;
	// zero if it was not warned.
	WarnedAt time.Time
}

// An OffReason is the reason why a webhook was disabled.
type OffReason string

// The reasons.
const (
	OffGone    OffReason = "gone"    // the receiver answered 410 Gone
	OffFailing OffReason = "failing" // all attempts, for 2 or more events, failed throughout webhooks.RetryPolicy.DisableAfter
)

// NoteFailure records a failed attempt to send the event and reports whether the health changed. at
// is the start of the attempt, in UTC, truncated to milliseconds.
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

// EndFailing clears FailingSince, FailingEvent, FailedAgain and WarnedAt.
func (w *WebhookHealth) EndFailing() {
	w.FailingSince, w.FailingEvent, w.FailedAgain, w.WarnedAt = time.Time{}, "", false, time.Time{}
}

// After returns the health after an attempt to send the event. A success ends the run of failures;
// a failure of the receiver begins or continues it. A non-empty off disables an active webhook as
// of the start of the attempt.
func (h WebhookHealth) After(effect Effect, attempt *Attempt, eventID string, off OffReason) WebhookHealth {
	at := attempt.StartedAt.UTC().Truncate(time.Millisecond)
	switch {
	case effect == Deliver:
		h.EndFailing()
		if h.ProvenAt.IsZero() {
			h.ProvenAt = at
		}
	case attempt.FailsReceiver():
		h.NoteFailure(eventID, at)
	}
	if off != "" && h.Active {
		h.Active, h.OffReason, h.OffAt = false, off, at
	}
	return h
}

// Proven reports whether the receiver has accepted an event at this URL and the last attempt
// succeeded. When slots are scarce, unproven webhooks get only a share of them.
func (w *WebhookHealth) Proven() bool { return !w.ProvenAt.IsZero() && w.FailingSince.IsZero() }

// Claimable reports whether the webhook is active and not on hold, so that attempts may be made.
func (w *Webhook) Claimable() bool { return w.Active && !w.Held }

// NoEnd is the [Webhook.PausedUntil] of a pause without an end.
var NoEnd = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// Paused reports whether the webhook is paused at now.
func (w *Webhook) Paused(now time.Time) bool { return now.Before(w.PausedUntil) }

// PublicKeys returns the keys that verify requests if the webhook signs with [signing.V1a]: that of
// Secret and, if it is set, that of PreviousSecret.
func (w *Webhook) PublicKeys() (keys []signing.PublicKey) {
	if !slices.Contains(w.Signatures, signing.V1a) {
		return nil
	}
	for _, secret := range [...]signing.Secret{w.Secret, w.PreviousSecret} {
		if !secret.IsZero() {
			keys = append(keys, secret.PublicKey())
		}
	}
	return keys
}

// Subscribes reports whether the webhook, active or not, is subscribed to t, a type with this scope.
func (w *Webhook) Subscribes(t EventType, scope scopes.Scope) bool {
	return slices.Contains(w.Events, t) || w.SubscribesAll() && slices.Contains(w.EventScopes, scope)
}

// SubscribesAll reports whether Events is [AllEvents].
func (w *Webhook) SubscribesAll() bool { return len(w.Events) > 0 && w.Events[0] == AllEvents }
