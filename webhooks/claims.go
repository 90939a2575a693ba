package webhooks

import (
	"context"
	"time"

	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks/internal/scheduler"
)

const (
	maxClaim  = 400              // deliveries per store call, so that the call stays short
	minPause  = time.Millisecond // before the next claim, if not all picked deliveries were attempted
	maxSleep  = time.Hour        // maximum pause of the run loop
	beatEvery = 10 * time.Second // the run loop makes a round this often even if idle: see [Health.LastRound]
	minTrial  = time.Minute      // first pause between trials; the pauses double
	maxTrial  = time.Hour
)

// claims is the run loop's state between claims.
type claims struct {
	backoff time.Duration // after failed claims
	rested  time.Time     // no store call before this time
	pause   time.Duration // between trials, while results cannot be recorded
	trial   time.Time     // the next trial
}

// limit returns how many deliveries may be claimed now. If that is 0, next is when to check again
// at the latest. While results cannot be recorded, limit allows only an occasional trial of one
// delivery: if its result is recorded, the store rejects only some results.
func (c *claims) limit(now time.Time, free int, failing bool) (limit int, next time.Time) {
	switch {
	case !failing:
		c.pause = 0
	case c.pause == 0:
		c.pause, c.trial = minTrial, now.Add(minTrial)
	}
	switch {
	case free == 0:
		return 0, now.Add(maxSleep)
	case now.Before(c.rested):
		return 0, c.rested
	case !failing:
		return min(free, maxClaim), now
	case now.Before(c.trial):
		return 0, c.trial
	}
	return 1, now
}

// tried records that a trial has begun the given number of attempts.
func (c *claims) tried(now time.Time, attempts int) {
	if attempts > 0 {
		c.pause = min(2*c.pause, maxTrial)
	}
	c.trial = now.Add(c.pause)
}

// claim begins attempts and returns them. They hold slots, so the caller must run them. next is
// when to claim again, unless an event wakes the loop earlier.
func (d *dispatcher) claim(ctx context.Context, c *claims) (claimed []*inflight, next time.Time) {
	now, failing := time.Now(), d.failing.Load()
	d.scheduler.Tick()
	limit, next := c.limit(now, d.scheduler.Room(), failing)
	limit, next = d.outage.Limit(now, limit, next)
	if limit == 0 {
		return nil, d.scheduler.NextWake(next, false)
	}
	clear(d.claimed)
	d.claimed = d.claimed[:0]
	begin := func() (*scheduler.Slot, scheduler.Attempt) {
		f := d.newInflight()
		f.begun = now
		d.claimed = append(d.claimed, f)
		return &f.slot, f
	}
	more := false
	if failing {
		d.scheduler.NextTrial(begin)
	} else {
		more = d.scheduler.Next(limit, d.outage.Turns(limit), begin)
	}
	picked := len(d.claimed)
	if picked > 0 {
		err := d.load(ctx, limit)
		d.outage.Began(len(d.claimed))
		c.backoff = d.halt.backoff("claim", c.backoff, err)
		d.activity.endClaims(len(d.claimed), err)
	}
	if failing {
		c.tried(now, len(d.claimed))
	}
	now = time.Now()
	c.rested = now.Add(c.backoff)
	switch {
	case failing:
		next = c.trial
	case len(d.claimed) < picked: // another delivery may take the unused turn
		next = now.Add(max(c.backoff, minPause))
	case more:
		next = now
	default:
		next = now.Add(maxSleep)
	}
	return d.claimed, d.scheduler.NextWake(next, c.backoff == 0 && !failing)
}

// load reads the picked deliveries. It leaves the attempts to make in d.claimed, and returns the
// other deliveries to the scheduler.
func (d *dispatcher) load(ctx context.Context, limit int) error {
	timed, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	d.refs = d.refs[:0]
	for _, f := range d.claimed {
		d.refs = append(d.refs, driver.DeliveryRef{WebhookID: f.slot.Webhook(), Number: f.slot.Number()})
	}
	begun := began(d.reporter.observer.Claimed != nil)
	found, err := d.store.Load(timed, d.refs)
	if err != nil {
		found = make([]driver.LoadedDelivery, len(d.claimed))
		for i := range found {
			found[i].State = driver.Unread
		}
	}
	picked := d.claimed
	d.claimed = d.claimed[:0]
	for i, f := range picked {
		if d.prepare(f, &found[i]) {
			d.claimed = append(d.claimed, f)
		}
	}
	clear(picked[len(d.claimed):])
	d.reporter.claimed(begun, limit, len(d.claimed), err)
	if ctx.Err() != nil {
		return nil // the cancellation caused the error
	}
	return err
}

// prepare fills an attempt from its loaded delivery, and reports whether to make the attempt.
func (d *dispatcher) prepare(f *inflight, l *driver.LoadedDelivery) bool {
	loaded := scheduler.Loaded{State: scheduler.LoadState(l.State), Attempts: l.Attempts, Due: l.Due}
	if l.Webhook != nil && l.Err == nil {
		record := recordOf(l.Webhook)
		loaded.Webhook = &record
	}
	record, ok := d.scheduler.Loaded(&f.slot, &loaded)
	if !ok {
		f.End()
		d.reuse(f)
		return false
	}
	webhook := l.Webhook
	if l.Err == nil {
		webhook = record.(*Webhook)
	}
	f.settlement.Task = task{Event: l.Event, Webhook: webhook, Attempt: l.Attempts + 1, Before: l.Before, Age: l.Age, Err: l.Err}
	return true
}
