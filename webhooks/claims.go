package webhooks

import (
	"context"
	"time"

	"github.com/storageapi/storageapi/webhooks/internal/limiter"
)

const (
	maxClaim  = 400              // tasks a store call, so that its steps stay short
	minPause  = time.Millisecond // between claims, if nothing was due
	maxSleep  = time.Hour        // of the run loop
	beatEvery = 10 * time.Second // sign of life of the run loop, also if it sleeps: see [Health.LastRound]
	minTrial  = time.Minute      // pauses between trials: they double
	maxTrial  = time.Hour
)

// claims is what the run loop knows of its claims from one to the next.
type claims struct {
	backoff time.Duration // after claims that failed
	rested  time.Time     // the store is not to be asked before
	pause   time.Duration // between trials, while recording fails
	trial   time.Time     // the next one
}

// limit returns how many deliveries may be claimed now; if none, when that changes
// at the latest. While recording fails it is none, except one now and then, a
// trial: if its result is recorded, only some of the rest cannot be.
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

// tried notes that a trial was made, and how many attempts it began.
func (c *claims) tried(now time.Time, attempts int) {
	if attempts > 0 {
		c.pause = min(2*c.pause, maxTrial)
	}
	c.trial = now.Add(c.pause)
}

// claim returns new attempts, registered but not begun, and when the next claim is
// due, unless something happens before.
func (d *dispatcher) claim(ctx context.Context, c *claims) (claimed []*inflight, next time.Time) {
	d.claiming <- struct{}{}
	defer func() { <-d.claiming }()
	now, failing := time.Now(), d.failing.Load()
	d.limiter.Tick(now)
	limit, next := c.limit(now, d.limiter.Room(), failing)
	limit, next = d.outage.Limit(now, limit, next)
	if limit == 0 {
		return nil, d.limiter.NextWake(now, next, false)
	}
	timed, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	clear(d.claimed)
	d.claimed = d.claimed[:0]
	var wait time.Duration
	var err error
	if failing {
		wait, err = d.lease(timed, Claim{Limit: limit, Cap: d.limiter.IdleCap}, now)
		c.tried(now, len(d.claimed))
	} else {
		wait, err = d.leaseAll(timed, limit, now)
	}
	d.outage.Began(len(d.claimed))
	if ctx.Err() != nil {
		err = nil // it was to end, and did
	}
	c.backoff = d.halt.backoff("claim", c.backoff, err)
	d.activity.endClaims(len(d.claimed), err)
	now = time.Now()
	if c.rested = now.Add(c.backoff); len(d.claimed) == 0 {
		wait = max(wait, c.backoff, minPause)
	}
	return d.claimed, d.limiter.NextWake(now, now.Add(wait), err == nil)
}

// leaseAll claims first what webhooks that are not healthy may have, for they hold less
// than their share, and then all else that is due.
func (d *dispatcher) leaseAll(ctx context.Context, limit int, now time.Time) (wait time.Duration, err error) {
	if webhooks, turns := d.limiter.Turns(now, d.outage.Turns(limit)); turns > 0 {
		wait, err = d.lease(ctx, Claim{Limit: turns, Cap: d.limiter.TurnCap, Webhooks: webhooks}, now)
		d.limiter.EndTurns(time.Now(), wait == 0, err)
		if limit -= len(d.claimed); limit == 0 || err != nil {
			return 0, err
		}
	}
	unproven, version := d.limiter.Caps()
	wait, err = d.lease(ctx, Claim{Limit: limit, Cap: d.limiter.Cap, CapVersion: version, ProvenOnly: max(0, limit-unproven)}, now)
	d.limiter.Claimed(err)
	return wait, err
}

// lease registers what it claims.
func (d *dispatcher) lease(ctx context.Context, claim Claim, now time.Time) (wait time.Duration, err error) {
	claim.Lease, claim.PerAccount = d.config.Lease, d.config.PerAccount
	claim.LongestRetry = d.longestRetry
	claim.Finished = d.leases.tokens(now, claim.Lease, d.failing.Load())
	if !d.failing.Load() {
		claim.Probes, claim.ProbeCap = d.limiter.RequestRoom(), d.limiter.RequestRoomOf
	}
	begun := began(d.reporter.observer.Claimed != nil)
	tasks, wait, err := d.store.ClaimDeliveries(ctx, claim)
	d.reporter.claimed(begun, claim.Limit, len(tasks), err)
	if err != nil {
		return 0, err
	}
	d.leases.told()
	for _, task := range tasks {
		f := d.newInflight()
		f.settlement.Task, f.begun = task, now
		d.limiter.Begin(&f.slot, f, limiter.Start{
			Webhook: task.Webhook.ID, Account: task.Webhook.Account, At: now,
			Turn: len(claim.Webhooks) > 0, Requested: task.Probe,
			Proven: task.Webhook.Proven(), Failing: !task.Webhook.FailingSince.IsZero(),
		})
		d.claimed = append(d.claimed, f)
	}
	return wait, nil
}

// finishedLeases are those of attempts that have ended and are not recorded yet. They
// must not run out meanwhile, however long the store fails: what was sent would be sent
// again. The zero finishedLeases is none.
type finishedLeases struct {
	attempts []*inflight // in no order
	fresh    []uint64    // tokens that no claim has told the store of yet
	lasting  []uint64    // tokens of those that wait for long: each claim tells of them again
	looked   time.Time   // when these were last looked for
}

// A lease is what finishedLeases knows of an attempt.
type lease struct {
	index    int
	finished time.Time
}

// lastingAfter is how long an attempt waits before it is listed again; a part of the
// lease if that is short.
const lastingAfter = time.Second

func (l *finishedLeases) add(f *inflight, now time.Time) {
	f.lease = lease{len(l.attempts), now}
	l.attempts = append(l.attempts, f)
	l.fresh = append(l.fresh, f.settlement.Task.Token)
}

func (l *finishedLeases) remove(f *inflight) {
	last := len(l.attempts) - 1
	l.attempts[f.lease.index] = l.attempts[last]
	l.attempts[f.lease.index].lease.index = f.lease.index
	l.attempts[last] = nil
	l.attempts = l.attempts[:last]
}

// tokens returns the tokens for [Claim.Finished]: those of all if the store fails, for
// claims are rare then.
func (l *finishedLeases) tokens(now time.Time, lease time.Duration, all bool) []uint64 {
	pause := min(lastingAfter, lease/8)
	if all || now.Sub(l.looked) >= pause {
		l.looked, l.lasting = now, l.lasting[:0]
		for _, f := range l.attempts {
			if all || now.Sub(f.lease.finished) >= pause {
				l.lasting = append(l.lasting, f.settlement.Task.Token)
			}
		}
	}
	return append(l.fresh, l.lasting...)
}

// told notes that a claim has told the store of those that were new.
func (l *finishedLeases) told() { l.fresh = l.fresh[:0] }
