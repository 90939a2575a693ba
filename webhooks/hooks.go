package webhooks

import "time"

// Hooks tell the host what happens, once the store has recorded it; each may be
// nil. They are called one after the other by the goroutine that records the results of
// attempts, and hold it up: they must be quick. One that panics or ends its
// goroutine is logged, and so is one that has not returned when Run has drained: Run
// returns all the same, and the calls that would follow are not made. What happens just
// before a crash may never be passed to a hook; the webhooks and the attempts stored hold
// it all.
type Hooks struct {
	// Attempt is called for each attempt that was made.
	Attempt func(AttemptInfo)

	// Failing is called once when all attempts of a webhook have failed since
	// the given time, which is half of [Config.FailingLimit] ago or more, those of two
	// events at least: it will be turned off if that goes on, after 12 hours at the
	// earliest, or half of FailingLimit if that is less.
	Failing func(webhook Webhook, since time.Time)

	// Off is called when a webhook was turned off.
	Off func(webhook Webhook, reason OffReason)
}

// An AttemptInfo describes an attempt and what became of its delivery.
type AttemptInfo struct {
	Account   string
	WebhookID string
	EventID   string
	Type      EventType
	Attempt   Attempt
	State     DeliveryState // Delivered, Dead, or Pending: there will be another attempt
}
