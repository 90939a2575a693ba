package webhooks

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/storageapi/storageapi/internal/observing"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/store/driver"
)

// A reporter counts and logs recorded results and reports them to the Observer.
type reporter struct {
	store    driver.WebhookStore
	observer observe.Observer
	observing.Changes
	logger *slog.Logger

	delivered, failed, dead atomic.Uint64 // see Stats

	unsupported atomic.Pointer[time.Time] // last log line about an unreadable record
}

func newReporter(store driver.WebhookStore, config Config) *reporter {
	return &reporter{store: store, observer: config.Observe, Changes: observing.NewChanges(config.Observe, config.Logger), logger: config.Logger}
}

// settled reports the settlements of batch, except those with indexes in stale.
func (r *reporter) settled(batch []settlement, stale []int) {
	for i := range batch {
		if _, ignored := slices.BinarySearch(stale, i); ignored {
			continue
		}
		s := &batch[i]
		if isUnsupported(s.Task.Err) {
			r.logUnsupported(s)
			continue
		}
		r.count(s)
		r.logAttempt(s)
		r.attempted(s)
		if s.Deactivate != "" && r.isOff(s) {
			r.logWebhook("storageapi: webhook disabled: its receiver answered 410 Gone", s.Task.Webhook)
			r.Changed(s.Off)
		}
	}
}

// logUnsupported logs, at most once a minute, that some deliveries wait because only another
// process can read their records.
func (r *reporter) logUnsupported(s *settlement) {
	now, last := time.Now(), r.unsupported.Load()
	if last != nil && now.Sub(*last) < unsupportedRetry || !r.unsupported.CompareAndSwap(last, &now) {
		return
	}
	r.logger.Error("storageapi: this process cannot read a stored record; its deliveries wait; run the library version that wrote it, or configure the key that sealed it",
		"webhook", s.Task.Webhook.ID, "event", s.Task.Event.ID, "error", s.Task.Err)
}

// attempted reports an attempt to the Observer.
func (r *reporter) attempted(s *settlement) {
	if r.observer.Attempted == nil || s.Postponed {
		return
	}
	a := observe.Attempt{
		Account:   s.Task.Webhook.Account,
		WebhookID: s.Task.Webhook.ID,
		EventID:   s.Task.Event.ID,
		Receiver:  origin(s.Task.Webhook.URL),
		EventType: string(s.Task.Event.Type),
		Number:    s.Attempt.Number,
		StartedAt: s.Attempt.StartedAt,
		Duration:  s.Attempt.Duration,
		Status:    s.Attempt.Status,
		Class:     string(s.Attempt.Class),
		Error:     s.Attempt.Error,
		Result:    resultOf(s.Effect),

		EventTimestamp: s.Task.Event.Timestamp,
		TraceContext:   s.Task.Event.TraceContext,
	}
	r.Add(func() { r.observer.Attempted(a) })
}

// began returns the current time for an observed call, or the zero time.
func began(observed bool) time.Time {
	if !observed {
		return time.Time{}
	}
	return time.Now()
}

// claimed reports to the Observer a call to the store's Load that began at begun.
func (r *reporter) claimed(begun time.Time, limit, claimed int, err error) {
	if r.observer.Claimed != nil {
		c := observe.Claim{Limit: limit, Claimed: claimed, Duration: time.Since(begun), Err: err}
		r.Add(func() { r.observer.Claimed(c) })
	}
}

// called reports to the Observer a call to the store's Settle that began at begun.
func (r *reporter) called(begun time.Time, size, stale int, err error) {
	if r.observer.Settled != nil {
		s := observe.Settlement{Size: size, Stale: stale, Duration: time.Since(begun), Err: err}
		r.Add(func() { r.observer.Settled(s) })
	}
}

// published reports a publication to the Observer.
func (r *reporter) published(ctx context.Context, p observe.Publication) {
	if r.observer.Published != nil && len(p.Events) > 0 {
		defer observing.Recover(r.logger)
		r.observer.Published(ctx, p)
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

// isOff reports whether the settlement disabled its webhook. It did not disable the webhook if the
// URL was changed before the settlement was stored.
func (r *reporter) isOff(s *settlement) bool {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	webhook, err := r.store.WebhookByID(ctx, s.Task.Webhook.Account, s.Task.Webhook.ID)
	return err != nil || webhook.OffReason == s.Deactivate
}

func (r *reporter) count(s *settlement) {
	switch {
	case s.Postponed:
	case s.Effect == driver.Deliver:
		r.delivered.Add(1)
	case s.Effect == driver.Retry:
		r.failed.Add(1)
	default:
		r.failed.Add(1)
		r.dead.Add(1)
	}
}

// resultOf returns the observe.Result for an effect.
func resultOf(effect driver.Effect) observe.Result {
	switch effect {
	case driver.Deliver:
		return observe.Delivered
	case driver.GiveUp:
		return observe.Dead
	}
	return observe.Retry
}

// logAttempt logs an attempt. It leaves out URL paths and queries, which often hold secrets.
func (r *reporter) logAttempt(s *settlement) {
	level, message := slog.LevelDebug, "storageapi: webhook delivered"
	switch {
	case s.Postponed:
		message = "storageapi: webhook attempt canceled"
	case s.Effect == driver.GiveUp:
		level, message = slog.LevelWarn, "storageapi: webhook delivery given up"
	case s.Effect == driver.Retry:
		message = "storageapi: webhook attempt failed"
	}
	ctx := context.Background()
	if !r.logger.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("account", s.Task.Webhook.Account),
		slog.String("webhook", s.Task.Webhook.ID),
		slog.String("event", s.Task.Event.ID),
		slog.String("receiver", origin(s.Task.Webhook.URL)),
		slog.Int("attempt", s.Attempt.Number),
		slog.Duration("duration", s.Attempt.Duration),
	}
	if s.Attempt.Status != 0 {
		attrs = append(attrs, slog.Int("status", s.Attempt.Status))
	}
	if s.Attempt.Error != "" {
		attrs = append(attrs, slog.String("error", s.Attempt.Error))
	}
	if s.RetryAfter > 0 {
		attrs = append(attrs, slog.Duration("retry_after", s.RetryAfter))
	}
	r.logger.LogAttrs(ctx, level, message, attrs...)
}
