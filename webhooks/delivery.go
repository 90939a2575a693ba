package webhooks

import "time"

// A Delivery is one event on its way to one webhook.
type Delivery struct {
	EventID   string
	WebhookID string
	State     DeliveryState

	// NextAttemptAt is when a pending delivery is due; it may be in the past.
	NextAttemptAt time.Time

	// Attempts are those that were settled, the first one first.
	Attempts []Attempt
}

// A DeliveryState tells how far a delivery is.
type DeliveryState string

// The states of a delivery.
const (
	Pending   DeliveryState = "pending"   // owed: an attempt will be made, or is under way
	Delivered DeliveryState = "delivered" // the receiver answered 2xx
	Dead      DeliveryState = "dead"      // given up
)

// An Attempt is one try to deliver an event to a webhook.
type Attempt struct {
	Number    int           // 1 for the first
	StartedAt time.Time     // UTC, to the millisecond
	Duration  time.Duration // to the microsecond
	Status    int           // of the response; 0 if there was none
	Error     string        // why it failed, without secrets; empty for success
}
