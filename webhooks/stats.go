package webhooks

import (
	"context"
	"fmt"
	"time"

	"github.com/storageapi/storageapi/store/driver"
)

// Stats are figures for all accounts together.
type Stats struct {
	Pending   int           // pending deliveries, even of webhooks that are off or on hold
	Held      int           // webhooks on hold since the store was restored: see [WebhookService.ReleaseAll]
	OldestDue time.Duration // how long the oldest due delivery has been due; 0 if none is due
	InFlight  int           // running attempts of this process

	// LongestWait is the longest time that a webhook whose receiver is up has waited for an attempt.
	// Alert on it. Unlike OldestDue it ignores receivers that are down. It covers the webhooks for
	// which this process delivers, and is 0 in a process that does not call Run.
	LongestWait time.Duration

	// IdleConns is the current number of idle connections to receivers, and MaxIdleConns its limit,
	// which is about the number of receiver hosts that can keep a connection. If events go to more
	// hosts, most deliveries begin with a TLS handshake: see [Outbound.MaxIdleConns].
	IdleConns, MaxIdleConns int

	// Totals of this service since New.
	Delivered uint64 // deliveries that arrived
	Failed    uint64 // attempts that failed
	Dead      uint64 // deliveries that ended as dead

	// FileBytes is the size of the store's file, and FreeBytes the space in it that was freed by
	// purged records and can be reused. Both are 0 if the store has no file. If most of a large file
	// stays free, boltops.Compact makes it smaller.
	FileBytes, FreeBytes int64

	// Halted is why the store is read-only and claims nothing; nil if it is writable. Alert on it.
	// To recover, fix the disk and restart.
	Halted error
}

// Stats returns current figures. It costs about a millisecond for each 10,000 webhooks with pending
// deliveries: call it every few seconds at most.
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
		Pending: backlog.Pending, Held: backlog.Held, OldestDue: ageOf(backlog), InFlight: d.scheduler.InFlight(), LongestWait: wait,
		Delivered: d.reporter.delivered.Load(), Failed: d.reporter.failed.Load(), Dead: d.reporter.dead.Load(),
		Halted: d.halt.cause(),
	}, nil
}

// WebhookStats are figures for one webhook.
type WebhookStats struct {
	Pending      int           // pending deliveries
	OldestDue    time.Duration // how long the oldest due delivery has been due; 0 if none is due
	LimiterState LimiterState  // state of the limiter in this process

	// TurnsOffAt is when the webhook will be disabled if no attempt succeeds first: see
	// [RetryPolicy.DisableAfter]. Zero if DisableAfter is negative, if the webhook is off or on
	// hold, if its last attempt succeeded, or if only one event has failed.
	TurnsOffAt time.Time
}

// A LimiterState is the state of the adaptive limiter of a webhook: an AIMD concurrency limit and a
// circuit breaker.
type LimiterState struct {
	InFlight int  // running attempts of this process
	Cap      int  // maximum number of concurrent attempts
	Failures int  // failed attempts since the last success
	Slow     bool // attempts take long: the webhook shares the slots of slow webhooks
	Open     bool // the circuit breaker is open: only single probes are sent, until one succeeds

	OpenUntil time.Time // earliest start of the next probe, if Open
	Known     bool      // this process delivers for the webhook; also false if nothing was pending recently
}

// WebhookStats returns the figures of the account's webhook, or [apierr.ErrNotFound]. Fields of
// [Webhook] show why the webhook is off, and since when it is off or failing.
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
		Pending: backlog.Pending, OldestDue: ageOf(backlog), LimiterState: LimiterState(s.dispatcher.scheduler.State(webhookID)),
		TurnsOffAt: s.maintainer.deactivator.turnsOffAt(&webhook),
	}, nil
}

// backlog counts the pending deliveries of a webhook, or of all webhooks if the ID is empty. It
// includes deliveries that the store has not reported yet.
func (s *WebhookService) backlog(ctx context.Context, webhookID string) (driver.Backlog, error) {
	b, err := s.store.Unreported(ctx, webhookID)
	if err != nil {
		return driver.Backlog{}, err
	}
	reported := s.dispatcher.scheduler.Backlog(webhookID)
	b.Pending += reported.Pending
	if due := reported.OldestDue; !due.IsZero() && (b.OldestDue.IsZero() || due.Before(b.OldestDue)) {
		b.OldestDue = due
	}
	return b, nil
}

// ageOf returns how long the oldest due delivery has been due.
func ageOf(b driver.Backlog) time.Duration {
	if b.OldestDue.IsZero() {
		return 0
	}
	return max(0, time.Since(b.OldestDue))
}
