package webhooks

import "time"

// Hooks tell the host what happens, once the store has recorded it; each may be
// nil. They are called one after the other by the goroutine that records what came
// of attempts, and hold it up: they must be quick. A panic in one is logged. What
// happens just before a crash may not be told; the webhooks and the attempts
// stored tell it all.
type Hooks struct {
	// Attempt is called for each attempt that was made.
	Attempt func(AttemptInfo)

	// Failing is called once when all attempts of a webhook have failed since
	// the given time, which is half of [Config.FailingLimit] ago: it will be
	// turned off if that goes on.
	Failing func(webhook Webhook, since time.Time)

	// Off is called when a webhook was turned off.
	Off func(webhook Webhook, reason OffReason)
}

// An AttemptInfo tells of an attempt and what became of its delivery.
type AttemptInfo struct {
	Account   string
	WebhookID string
	EventID   string
	Type      EventType
	Attempt   Attempt
	State     DeliveryState // Delivered, Dead, or Pending: there will be another attempt
}

// tell calls the hooks for a settlement that was recorded.
func (d *dispatcher) tell(s *Settlement) {
	hooks := &d.config.Hooks
	if hooks.Attempt != nil && s.Outcome != Release {
		info := AttemptInfo{s.Task.Webhook.Account, s.Task.Webhook.ID, s.Task.Event.ID, s.Task.Event.Type, s.Attempt, stateAfter(s.Outcome)}
		d.call("Attempt", func() { hooks.Attempt(info) })
	}
	if s.Warned && hooks.Failing != nil {
		webhook := s.Task.Webhook.clone()
		webhook.WarnedAt = s.Attempt.StartedAt
		d.call("Failing", func() { hooks.Failing(webhook, webhook.FailingSince) })
	}
	if s.Deactivate != "" && hooks.Off != nil {
		webhook := s.Task.Webhook.clone()
		webhook.Active, webhook.OffReason = false, s.Deactivate
		d.call("Off", func() { hooks.Off(webhook, s.Deactivate) })
	}
}

func stateAfter(outcome Outcome) DeliveryState {
	switch outcome {
	case Deliver:
		return Delivered
	case GiveUp:
		return Dead
	}
	return Pending
}

// call calls a hook, which may panic.
func (d *dispatcher) call(name string, hook func()) {
	defer func() {
		if p := recover(); p != nil {
			d.config.Logger.Error("storageapi: a webhook hook panicked", "hook", name) // its value could hold anything
		}
	}()
	hook()
}
