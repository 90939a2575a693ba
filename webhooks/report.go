package webhooks

import (
	"context"
	"log/slog"
	"slices"
	"time"
)

// report logs what came of attempts, but for the stale ones, without secrets: the
// paths and queries of URLs often hold some.
func (d *dispatcher) report(batch []Settlement, stale []int) {
	for i := range batch {
		if _, ignored := slices.BinarySearch(stale, i); !ignored {
			d.reportOne(&batch[i])
		}
	}
}

func (d *dispatcher) reportOne(s *Settlement) {
	level, message := slog.LevelDebug, "storageapi: webhook delivered"
	switch {
	case s.Deactivate:
		level, message = slog.LevelWarn, "storageapi: webhook turned off: its receiver answered 410 Gone"
	case s.Outcome == GiveUp:
		level, message = slog.LevelWarn, "storageapi: webhook delivery given up"
	case s.Outcome == Retry:
		message = "storageapi: webhook attempt failed"
	case s.Outcome == Release:
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
	d.config.Logger.Error("storageapi: webhook store failed", "step", step, "error", err, "again_in", next)
	return next
}
