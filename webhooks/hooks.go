package webhooks

import "time"

// Hooks tell the host what happens, once the store has recorded it; each may be
// nil. They are called one after the other by the goroutine that records what came
// of attempts, and hold it up: they must be quick. One that panics or ends its
// goroutine is logged, and so is one that has not returned when Run has drained: Run
// returns all the same, and what else there is to tell is not told. What
// happens just before a crash may not be told either; the webhooks and the attempts
// stored tell it all.
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

// An AttemptInfo tells of an attempt and what became of its delivery.
type AttemptInfo struct {
	Account   string
	WebhookID string
	EventID   string
	Type      EventType
	Attempt   Attempt
	State     DeliveryState // Delivered, Dead, or Pending: there will be another attempt
}

// A hookCall is a call of a hook that is to be made.
type hookCall struct {
	name string
	call func()
}

// told returns the calls that tell of a settlement that was recorded.
func (d *dispatcher) told(calls []hookCall, s *Settlement) []hookCall {
	hooks := &d.config.Hooks
	if hooks.Attempt != nil && s.Outcome != Release {
		info := AttemptInfo{s.Task.Webhook.Account, s.Task.Webhook.ID, s.Task.Event.ID, s.Task.Event.Type, s.Attempt, stateAfter(s.Outcome)}
		calls = append(calls, hookCall{"Attempt", func() { hooks.Attempt(info) }})
	}
	if s.Deactivate != "" && hooks.Off != nil {
		webhook := s.Task.Webhook.clone()
		webhook.Active, webhook.OffReason = false, s.Deactivate
		calls = append(calls, hookCall{"Off", func() { hooks.Off(webhook, s.Deactivate) }})
	}
	return calls
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

// tell makes calls of hooks, one after the other, until Run has to return. They run
// apart, so that one that never returns, or ends its goroutine, is only itself.
func (d *dispatcher) tell(calls []hookCall) {
	over := d.over
	for len(calls) > 0 {
		select {
		case d.telling <- struct{}{}:
		case <-over.Done():
			return // that of before has not returned, and was logged
		}
		made := 0
		returned := apart(func() {
			defer func() { <-d.telling }()
			for ; made < len(calls) && over.Err() == nil; made++ {
				d.call(calls[made])
			}
		})
		select {
		case ok := <-returned:
			if !ok {
				d.config.Logger.Error("storageapi: a webhook hook ended its goroutine", "hook", calls[made].name)
				made++
			}
			calls = calls[made:]
		case <-over.Done():
			d.config.Logger.Error("storageapi: a webhook hook does not return; Run does")
			return
		}
	}
}

// call calls a hook, which may panic.
func (d *dispatcher) call(c hookCall) {
	defer func() {
		if p := recover(); p != nil {
			d.config.Logger.Error("storageapi: a webhook hook panicked", "hook", c.name) // its value could hold anything
		}
	}()
	c.call()
}
