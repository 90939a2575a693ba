package webhooks

import (
	"context"
	"fmt"
	"time"
)

// Stats are figures of all accounts together.
type Stats struct {
	Pending   int           // deliveries, those of webhooks that are off or on hold included
	Held      int           // webhooks on hold since the store was restored: see [WebhookService.ReleaseAll]
	OldestDue time.Duration // how long the delivery that waits longest has been due; 0 if none is
	InFlight  int           // attempts that this process is making

	// LongestWait is how long a webhook whose receiver is up has waited for an attempt: alert on
	// it. Receivers that are down do not count, as they do in OldestDue. It covers the webhooks for
	// which this process delivers, and is 0 in a process that does not call Run.
	LongestWait time.Duration

	// IdleConns is how many connections to receivers this process keeps just now, and MaxIdleConns how
	// many it may: about as many receivers' hosts fit. If events go to more, most deliveries
	// begin with a TLS handshake: see [Outbound.MaxIdleConns].
	IdleConns, MaxIdleConns int

	// What this service has done since New.
	Delivered uint64 // deliveries that arrived
	Failed    uint64 // attempts that failed
	Dead      uint64 // deliveries given up

	// FileBytes is the size of the store's file, and FreeBytes how much of it is free: what was
	// purged, to be used again. 0 if the store has no file. If most of a large file is free
	// for long, boltops.Compact makes it smaller.
	FileBytes, FreeBytes int64

	// Halted is why the store writes and claims nothing any more; nil if it
	// does. Alert on it, and restart once the disk is sound.
	Halted error
}

// Stats returns the figures of the moment. It costs about a millisecond for each
// 10,000 webhooks with pending deliveries: call it once in some seconds.
func (s *WebhookService) Stats(ctx context.Context) (Stats, error) {
	backlog, err := s.backlog(ctx, "")
	if err == nil {
		err = s.store.Ping(ctx)
	}
	var wait time.Duration
	if err == nil {
		wait, err = s.dispatcher.scheduler.LongestWait()
	}
	if err != nil {
		return Stats{}, fmt.Errorf("get stats: %w", err)
	}
	var size, free int64
	if fileSize := s.store.Capabilities().FileSize; fileSize != nil {
		size, free = fileSize()
	}
	d := s.dispatcher
	return Stats{
		FileBytes: size, FreeBytes: free, IdleConns: d.sender.client.IdleConns(), MaxIdleConns: max(d.config.Outbound.MaxIdleConns, 0),
		Pending: backlog.Pending, Held: backlog.Held, OldestDue: backlog.age(), InFlight: d.scheduler.InFlight(), LongestWait: wait,
		Delivered: d.reporter.delivered.Load(), Failed: d.reporter.failed.Load(), Dead: d.reporter.dead.Load(),
		Halted: d.halt.cause(),
	}, nil
}

// WebhookStats are figures of one webhook.
type WebhookStats struct {
	Pending      int           // deliveries
	OldestDue    time.Duration // how long the one that waits longest has been due; 0 if none is
	LimiterState LimiterState  // of this process

	// TurnsOffAt is when the webhook will be turned off if no attempt succeeds before:
	// see [RetryPolicy.DisableAfter]. Zero if it is off or on hold, if its last attempt succeeded, and
	// as long as only one event has failed.
	TurnsOffAt time.Time
}

// A LimiterState is the state of the adaptive limiter of a webhook: an AIMD concurrency
// limit and a circuit breaker.
type LimiterState struct {
	InFlight int  // attempts that this process is making
	Cap      int  // how many it makes at a time, at most
	Failures int  // attempts that failed since the last success
	Slow     bool // attempts take long: the webhook shares the slots of the slow ones
	Open     bool // the circuit breaker is open: one probe at a time is made until one succeeds
}

// WebhookStats returns the figures of the account's webhook, or [ErrNotFound].
// Why and since when it is off or failing is in the [Webhook].
func (s *WebhookService) WebhookStats(ctx context.Context, account, webhookID string) (WebhookStats, error) {
	webhook, err := s.Get(ctx, account, webhookID)
	if err != nil {
		return WebhookStats{}, err
	}
	backlog, err := s.backlog(ctx, webhookID)
	if err != nil {
		return WebhookStats{}, fmt.Errorf("get stats of webhook: %w", err)
	}
	return WebhookStats{
		Pending: backlog.Pending, OldestDue: backlog.age(), LimiterState: LimiterState(s.dispatcher.scheduler.State(webhookID)),
		TurnsOffAt: s.maintainer.deactivator.turnsOffAt(&webhook),
	}, nil
}

// backlog counts the pending deliveries of a webhook, or of all if the ID is empty: those that the
// store has reported, and those that it has not.
func (s *WebhookService) backlog(ctx context.Context, webhookID string) (Backlog, error) {
	b, err := s.store.Unreported(ctx, webhookID)
	if err != nil {
		return Backlog{}, err
	}
	reported := s.dispatcher.scheduler.Backlog(webhookID)
	b.Pending += reported.Pending
	if due := reported.OldestDue; !due.IsZero() && (b.OldestDue.IsZero() || due.Before(b.OldestDue)) {
		b.OldestDue = due
	}
	return b, nil
}

// age returns how long the delivery that waits longest has been due.
func (b Backlog) age() time.Duration {
	if b.OldestDue.IsZero() {
		return 0
	}
	return max(0, time.Since(b.OldestDue))
}
