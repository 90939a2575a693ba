package webhooks

import (
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
)

// A task is a delivery to attempt.
type task struct {
	Event   EncodedEvent
	Webhook *Webhook      // shared
	Attempt int           // the number of the attempt to make
	Before  int           // attempts before the retries last started over
	Age     time.Duration // see LoadedDelivery.Age
	Err     error         // see LoadedDelivery.Err
}

// A settlement is the outcome of an attempt, and its effect on the delivery.
type settlement struct {
	Task      task
	Postponed bool          // the attempt does not count: the delivery stays pending, and is due after RetryAfter
	Effect    driver.Effect // the effect on the delivery, unless Postponed
	Attempt   Attempt

	RetryAfter time.Duration // until the next attempt, for Retry and Postponed
	Asked      bool          // the receiver asked for this wait: do not shorten it
	Deactivate OffReason     // why to disable the webhook; if empty, leave it on

	// Off is stored if Deactivate disables an active webhook. Recovered is stored if a Deliver effect
	// ends a run of failures about which the host was warned. Nil means no audit entry.
	Off, Recovered *audit.Entry
}

// delivers reports whether the receiver has accepted the event.
func (s *settlement) delivers() bool { return !s.Postponed && s.Effect == driver.Deliver }

// fails reports whether the receiver failed, which begins or continues the webhook's run of
// failures.
func (s *settlement) fails() bool {
	return !s.Postponed && s.Effect != driver.Deliver && s.Attempt.FailsReceiver()
}

// after returns the health of the webhook after the attempt.
func (s *settlement) after(h driver.WebhookHealth) driver.WebhookHealth {
	if s.Postponed {
		return h
	}
	return h.After(s.Effect, &s.Attempt, s.Task.Event.ID, s.Deactivate)
}
