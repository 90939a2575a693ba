package webhooks

import (
	"context"
	"log/slog"
	"time"
)

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

// A hookCall is a call of a hook that is to be made.
type hookCall struct {
	name string
	call func()
}

// A hookCaller calls hooks.
type hookCaller struct {
	logger  *slog.Logger
	over    context.Context // ends when Run has to return, even if hooks do not
	calling chan struct{}   // full while a hook is called
}

// call makes calls of hooks, one after the other, until Run has to return. They run
// apart, so that one that never returns, or ends its goroutine, is only itself.
func (h *hookCaller) call(calls []hookCall) {
	over := h.over
	for len(calls) > 0 {
		select {
		case h.calling <- struct{}{}:
		case <-over.Done():
			return // the one before has not returned, and was logged
		}
		made := 0
		returned := apart(func() {
			defer func() { <-h.calling }()
			for ; made < len(calls) && over.Err() == nil; made++ {
				h.callOne(calls[made])
			}
		})
		select {
		case ok := <-returned:
			if !ok {
				h.logger.Error("storageapi: a webhook hook ended its goroutine", "hook", calls[made].name)
				made++
			}
			calls = calls[made:]
		case <-over.Done():
			h.logger.Error("storageapi: a webhook hook does not return; Run does")
			return
		}
	}
}

// callOne calls a hook, which may panic.
func (h *hookCaller) callOne(c hookCall) {
	defer func() {
		if p := recover(); p != nil {
			h.logger.Error("storageapi: a webhook hook panicked", "hook", c.name) // its value could hold anything
		}
	}()
	c.call()
}

// lastWords is how long Run waits for the host's code, such as hooks, beyond the drain
// timeout: until then there may be attempts to report.
const lastWords = time.Second

// apart calls the host's code on a goroutine of its own: it may not return, and may end
// its goroutine. What it returns gets whether the call returned, once it is over.
func apart(call func()) <-chan bool {
	over := make(chan bool, 1)
	go func() {
		returned := false
		defer func() { over <- returned }()
		call()
		returned = true
	}()
	return over
}

// drained returns a context that ends when Run has to return, even if the host's code
// does not, after ctx has ended. Cancel frees what it takes.
func (c *Config) drained(ctx context.Context) (over context.Context, cancel context.CancelFunc) {
	over, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		late := time.AfterFunc(max(c.DrainTimeout, 0)+lastWords, end)
		context.AfterFunc(over, func() { late.Stop() })
	})
	return over, func() { stop(); end() }
}
