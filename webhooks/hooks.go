package webhooks

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/storageapi/storageapi/webhooks/internal/hostcode"
)

// Hooks tell the host what happens, fast and with losses: storageapi.Config.Notify misses
// nothing of what happens to webhooks. They are called once the store has recorded it; each may be
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

// A reporter counts, logs and passes to the host's hooks what was recorded.
type reporter struct {
	store  Store
	hooks  Hooks
	caller *hostcode.Caller
	over   context.Context // ends when Run has to return, even if hooks do not
	logger *slog.Logger

	delivered, failed, dead atomic.Uint64 // see Stats
}

func newReporter(store Store, config Config) *reporter {
	return &reporter{store: store, hooks: config.Hooks, caller: hostcode.NewCaller(config.Logger), logger: config.Logger}
}

// settled reports settlements, except the stale ones.
func (r *reporter) settled(batch []Settlement, stale []int) {
	var calls []hostcode.Call
	for i := range batch {
		if _, ignored := slices.BinarySearch(stale, i); ignored {
			continue
		}
		s := &batch[i]
		r.count(s.Outcome)
		r.logAttempt(s)
		if r.hooks.Attempt != nil && s.Outcome != Release {
			info := AttemptInfo{s.Task.Webhook.Account, s.Task.Webhook.ID, s.Task.Event.ID, s.Task.Event.Type, s.Attempt, stateAfter(s.Outcome)}
			calls = append(calls, hostcode.Call{Name: "Attempt", Func: func() { r.hooks.Attempt(info) }})
		}
		if s.Deactivate == "" || !r.isOff(s) {
			continue
		}
		webhook := s.Task.Webhook.clone()
		webhook.Active, webhook.OffReason, webhook.OffAt = false, s.Deactivate, s.Attempt.StartedAt
		calls = r.off(calls, webhook, "its receiver answered 410 Gone")
	}
	r.caller.Call(r.over, calls)
}

// off logs that a webhook was turned off, and returns calls with the one of the hook.
func (r *reporter) off(calls []hostcode.Call, webhook Webhook, why string) []hostcode.Call {
	r.logWebhook("storageapi: webhook turned off: "+why, &webhook)
	if r.hooks.Off != nil {
		calls = append(calls, hostcode.Call{Name: "Off", Func: func() { r.hooks.Off(webhook, webhook.OffReason) }})
	}
	return calls
}

// failing reports that a webhook will be turned off if its attempts go on failing.
func (r *reporter) failing(webhook Webhook) {
	r.logWebhook("storageapi: webhook will be turned off if its attempts go on failing", &webhook)
	if r.hooks.Failing != nil {
		r.caller.Call(r.over, []hostcode.Call{{Name: "Failing", Func: func() { r.hooks.Failing(webhook, webhook.FailingSince) }}})
	}
}

func (r *reporter) logWebhook(message string, w *Webhook) {
	r.logger.LogAttrs(context.Background(), slog.LevelWarn, message,
		slog.String("account", w.Account),
		slog.String("webhook", w.ID),
		slog.String("receiver", origin(w.URL)),
		slog.Time("failing_since", w.FailingSince),
	)
}

// isOff reports whether a webhook is off as a settlement was to turn it. It is not if its
// URL was changed before.
func (r *reporter) isOff(s *Settlement) bool {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	webhook, err := r.store.WebhookByID(ctx, s.Task.Webhook.Account, s.Task.Webhook.ID)
	return err != nil || webhook.OffReason == s.Deactivate
}

func (r *reporter) count(outcome Outcome) {
	switch outcome {
	case Deliver:
		r.delivered.Add(1)
	case Retry:
		r.failed.Add(1)
	case GiveUp:
		r.failed.Add(1)
		r.dead.Add(1)
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

// logAttempt logs an attempt without secrets: the paths and queries of URLs often hold
// some.
func (r *reporter) logAttempt(s *Settlement) {
	level, message := slog.LevelDebug, "storageapi: webhook delivered"
	switch s.Outcome {
	case GiveUp:
		level, message = slog.LevelWarn, "storageapi: webhook delivery given up"
	case Retry:
		message = "storageapi: webhook attempt failed"
	case Release:
		message = "storageapi: webhook attempt cut short"
	}
	ctx := context.Background()
	if !r.logger.Enabled(ctx, level) {
		return
	}
	r.logger.LogAttrs(ctx, level, message,
		slog.String("account", s.Task.Webhook.Account),
		slog.String("webhook", s.Task.Webhook.ID),
		slog.String("event", s.Task.Event.ID),
		slog.String("receiver", origin(s.Task.Webhook.URL)),
		slog.Int("attempt", s.Attempt.Number),
		slog.Duration("duration", s.Attempt.Duration),
		slog.Int("status", s.Attempt.Status),
		slog.String("error", s.Attempt.Error),
		slog.Duration("retry_after", s.RetryAfter),
	)
}
