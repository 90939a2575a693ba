package webhooks

import (
	"context"
	"log/slog"
	"slices"
	"time"
)

// report counts and logs what came of attempts and tells the host, but for the
// stale ones.
func (d *dispatcher) report(batch []Settlement, stale []int) {
	var calls []hookCall
	for i := range batch {
		if _, ignored := slices.BinarySearch(stale, i); ignored {
			continue
		}
		s := &batch[i]
		d.count(s.Outcome)
		d.logAttempt(s)
		if s.Deactivate != "" {
			d.confirm(s)
		}
		if s.Deactivate != "" {
			logFailing(d.config.Logger, "storageapi: webhook turned off: its receiver answered 410 Gone", s.Task.Webhook)
		}
		calls = d.told(calls, s)
	}
	d.tell(calls)
}

// confirm takes back what a settlement was to make of its webhook if the webhook is
// not so: its URL was changed before.
func (d *dispatcher) confirm(s *Settlement) {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	webhook, err := d.store.WebhookByID(ctx, s.Task.Webhook.Account, s.Task.Webhook.ID)
	if err != nil {
		return
	}
	if webhook.OffReason != s.Deactivate {
		s.Deactivate = ""
	}
}

func (d *dispatcher) count(outcome Outcome) {
	switch outcome {
	case Deliver:
		d.delivered.Add(1)
	case Retry:
		d.failed.Add(1)
	case GiveUp:
		d.failed.Add(1)
		d.dead.Add(1)
	}
}

// logAttempt logs what came of an attempt without secrets: the paths and queries
// of URLs often hold some.
func (d *dispatcher) logAttempt(s *Settlement) {
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
	if !d.config.Logger.Enabled(ctx, level) {
		return
	}
	d.config.Logger.LogAttrs(ctx, level, message,
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

// backoff logs a failure of the store and returns how long to wait after it: 0
// without one, twice the last time up to a bound with one.
func (d *dispatcher) backoff(step string, last time.Duration, err error) time.Duration {
	if err == nil {
		return 0
	}
	next := min(max(2*last, minBackoff), maxBackoff)
	if !d.halt.explains() {
		d.config.Logger.Error("storageapi: webhook store failed", "step", step, "error", err, "again_in", next)
	}
	return next
}
