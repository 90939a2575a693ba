package webhooks

import (
	"context"
	"fmt"
	"time"
)

// Stats tell how deliveries go, over all accounts.
type Stats struct {
	Pending   int           // deliveries owed, those of webhooks that are off included
	OldestDue time.Duration // for how long the delivery that waits longest has been due; 0 if none is
	InFlight  int           // attempts that this process is making

	// What this service has done since New.
	Delivered uint64 // deliveries that arrived
	Failed    uint64 // attempts that failed
	Dead      uint64 // deliveries given up

	// ExpiredLeases is how many claims came to nothing, because the process that had made
	// them ended or could not tell in time what became of them, and were taken back:
	// by this process, since its store was opened.
	ExpiredLeases uint64

	// Halted is why the store writes and claims nothing any more, if it is a [Halter]
	// that has halted: alert on it, and restart once the disk is sound. Nil: it does.
	Halted error
}

// Stats returns the figures of the moment. It costs about a millisecond for each
// 10,000 webhooks that are owed something: it is for once in some seconds.
func (s *WebhookService) Stats(ctx context.Context) (Stats, error) {
	backlog, err := s.store.Backlog(ctx, "")
	if err != nil {
		return Stats{}, fmt.Errorf("get stats: %w", err)
	}
	d := s.dispatcher
	return Stats{
		Pending: backlog.Pending, OldestDue: backlog.age(), InFlight: d.limiter.InFlight(),
		Delivered: d.reporter.delivered.Load(), Failed: d.reporter.failed.Load(), Dead: d.reporter.dead.Load(),
		ExpiredLeases: backlog.ExpiredLeases, Halted: d.halt.cause(),
	}, nil
}

// WebhookStats tell how the deliveries to one webhook go.
type WebhookStats struct {
	Pending      int           // deliveries owed
	OldestDue    time.Duration // for how long the one that waits longest has been due; 0 if none is
	LimiterState LimiterState  // how this process treats it

	// TurnsOffAt is when the webhook will be turned off if no attempt succeeds before:
	// see [Config.FailingLimit]. Zero if it is off, if its last attempt succeeded, and
	// as long as only one event has failed.
	TurnsOffAt time.Time
}

// A LimiterState tells how many attempts this process makes at a time to a webhook.
type LimiterState struct {
	InFlight int  // attempts under way
	Cap      int  // how many there may be at most
	Failures int  // attempts that failed since the last one that did not
	Slow     bool // its attempts take long: they share the slots of the slow
	Open     bool // its circuit breaker is open: all attempts fail, and one at a time is made until one succeeds
}

// WebhookStats returns the figures of the account's webhook, or [ErrNotFound].
// Why and since when it is off or failing is in the [Webhook].
func (s *WebhookService) WebhookStats(ctx context.Context, account, webhookID string) (WebhookStats, error) {
	webhook, err := s.Get(ctx, account, webhookID)
	if err != nil {
		return WebhookStats{}, err
	}
	backlog, err := s.store.Backlog(ctx, webhookID)
	if err != nil {
		return WebhookStats{}, fmt.Errorf("get stats of webhook: %w", err)
	}
	return WebhookStats{
		Pending: backlog.Pending, OldestDue: backlog.age(), LimiterState: LimiterState(s.dispatcher.limiter.State(webhookID)),
		TurnsOffAt: s.maintainer.deactivator.turnsOffAt(&webhook),
	}, nil
}

// age returns for how long the longest due delivery waits.
func (b Backlog) age() time.Duration {
	if b.OldestDue.IsZero() {
		return 0
	}
	return max(0, time.Since(b.OldestDue))
}
