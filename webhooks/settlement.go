package webhooks

import (
	"time"

	"github.com/storageapi/storageapi/audit"
)

// A task is a delivery to attempt.
type task struct {
	Event   EncodedEvent
	Webhook *Webhook      // shared
	Attempt int           // the number of the attempt to make
	Before  int           // attempts before the delivery was last sent again: its retries start over after them
	Age     time.Duration // see LoadedDelivery.Age
	Err     error         // see LoadedDelivery.Err
}

// A settlement is what becomes of a delivery after an attempt.
type settlement struct {
	Task    task
	Release bool    // no attempt was made: the delivery is pending as before, due after RetryAfter
	Outcome Outcome // unless Release
	Attempt Attempt

	RetryAfter time.Duration // until the next attempt, with Retry and Release
	Asked      bool          // the receiver asked for a wait that long: it is not shortened when the receiver recovers
	Deactivate OffReason     // turns the webhook off, for that reason

	// Off is stored if Deactivate turns the webhook off, which was on, and Recovered if a
	// Deliver ends a failing that has a WarnedAt. Nil: no audit entry is.
	Off, Recovered *audit.Entry
}

// delivers reports whether the event has arrived.
func (s *settlement) delivers() bool { return !s.Release && s.Outcome == Deliver }

// fails reports whether the receiver failed: this begins or prolongs the failing of the
// webhook.
func (s *settlement) fails() bool {
	return !s.Release && s.Outcome != Deliver && !s.Attempt.Class.ours()
}

// after returns the health of the webhook after the attempt.
func (s *settlement) after(h WebhookHealth) WebhookHealth {
	if s.Release {
		return h
	}
	return h.After(s.Outcome, &s.Attempt, s.Task.Event.ID, s.Deactivate)
}
