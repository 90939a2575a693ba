package webhooks

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/storageapi/storageapi/internal/jitter"
	"github.com/storageapi/storageapi/webhooks/internal/limiter"
)

// A dispatcher claims deliveries that are due, has attempts made as the limiter allows,
// and hands them to a settler to be recorded.
type dispatcher struct {
	store    Store
	sender   *sender
	config   Config
	activity *activity
	halt     *halt
	reporter *reporter
	notices  *noticeMaker
	limiter  *limiter.Limiter
	outage   limiter.Outage
	jitter   jitter.Source // of the waits between attempts and between probes
	waking   chan struct{} // something may have become due

	longestRetry time.Duration // that the configuration allows

	// claiming is full from before a claim until its attempts are registered: who
	// deletes a webhook and then looks at what is in flight finds all that was claimed
	// of it.
	claiming chan struct{}

	// failing is set while results cannot be recorded: no attempt is begun whose
	// result might be lost, except one now and then, a trial, to find out whether it is
	// the store that fails or what it is given.
	failing atomic.Bool

	// These are the run loop's.
	leases   finishedLeases
	claimed  []*inflight // in a claim, to be used again
	finished []*inflight // at a time, to be used again
	free     []*inflight // recorded, to be used again
}

func newDispatcher(store Store, sender *sender, config Config) *dispatcher {
	activity := newActivity()
	d := &dispatcher{
		activity: activity,
		store:    store,
		sender:   sender,
		config:   config,
		halt:     &halt{store: store, logger: config.Logger, activity: activity},
		reporter: newReporter(store, config),
		notices:  &noticeMaker{now: config.Now, notify: config.Notify},
		waking:   make(chan struct{}, 1),
		claiming: make(chan struct{}, 1),

		longestRetry: longestRetry(config.Retries, config.RetryJitter),
	}
	d.limiter = limiter.New(limiter.Config{
		Slots: config.Concurrency, PerWebhook: config.PerWebhook, PerAccount: config.PerAccount,
		MaxUnrecorded: maxSettle, Timeout: config.Timeout, Jitter: &d.jitter,
	})
	return d
}

// wake makes a running dispatcher look for due deliveries now. It is called also when
// the store failed to make some due: it may have done so nevertheless.
func (d *dispatcher) wake() {
	select {
	case d.waking <- struct{}{}:
	default:
	}
}

// probe has an attempt made at what is pending for the webhook, by any process, though
// its receiver is down. What was asked for does not fail if that cannot be noted: the
// pause ends by itself, within some minute.
func (d *dispatcher) probe(ctx context.Context, account, webhookID string) {
	if err := d.store.Probe(ctx, account, webhookID); err != nil && ctx.Err() == nil {
		d.config.Logger.Warn("storageapi: webhook store failed", "step", "probe", "account", account, "webhook", webhookID, "error", err)
	}
	d.wake()
}

// retrust is probe if there is reason to believe that the webhook is up: what was known
// of its receiver counts for little from now on.
func (d *dispatcher) retrust(ctx context.Context, account, webhookID string) {
	d.probe(ctx, account, webhookID) // first: it is to be the next attempt
	d.limiter.Trust(webhookID, time.Now())
	d.wake()
}

// deliver delivers until ctx is done, then drains.
func (d *dispatcher) deliver(ctx context.Context) {
	d.failing.Store(false)

	// Attempts outlive ctx by the drain timeout.
	attempts, cutShort := context.WithCancel(context.WithoutCancel(ctx))
	defer cutShort()
	// None of them ever has to wait: what they are sent is bounded by Limiter.Room.
	finished := make(chan *inflight, d.config.Concurrency)
	settler := newSettler(d.store, d.halt, d.reporter, d.notices, &d.failing, d.config.Concurrency+maxSettle)
	go settler.run(attempts)
	defer close(settler.results)
	workers := newWorkerPool(func(f *inflight) {
		d.run(f)
		finished <- f
	})
	defer close(workers.work)

	var claims claims
	timer := time.NewTimer(0)
	defer timer.Stop()
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	for ctx.Err() == nil {
		claimed, next := d.claim(ctx, &claims)
		for _, f := range claimed {
			workers.start(f)
		}
		timer.Reset(time.Until(next))
		for idle := true; idle; {
			d.activity.mark(&d.activity.round)
			idle = false
			select {
			case <-ctx.Done():
			case f := <-finished:
				d.release(f, finished, settler.results)
			case batch := <-settler.recorded:
				d.recorded(batch)
			case batch := <-settler.rejected:
				d.suspend(batch)
			case <-d.waking:
			case <-timer.C:
			case <-beat.C:
				idle = true
			}
		}
	}

	d.activity.enter(RunDraining)
	late := time.AfterFunc(max(d.config.DrainTimeout, 0), cutShort)
	defer late.Stop()
	tooLate := attempts.Done()
	for d.limiter.Busy() {
		select {
		case <-tooLate:
			tooLate = nil
			d.limiter.CancelAll()
		case f := <-finished:
			d.release(f, finished, settler.results)
		case batch := <-settler.recorded:
			d.recorded(batch)
		case batch := <-settler.rejected:
			d.suspend(batch)
		}
	}
}

// release frees the slot of an attempt that has finished, with those of the others that
// have, and hands them on to be recorded: others may use their slots meanwhile.
func (d *dispatcher) release(f *inflight, finished <-chan *inflight, results chan<- *inflight) {
	runtime.Gosched() // those that are about to finish come along, and share a claim
	batch := append(d.finished[:0], f)
	for more := true; more; {
		select {
		case f := <-finished:
			batch = append(batch, f)
		default:
			more = false
		}
	}
	now := time.Now()
	for _, f := range batch {
		s := &f.settlement
		s.Rest = d.limiter.Observe(&f.slot, s.shows(), s.Attempt.Duration, now)
	}
	for _, f := range batch {
		d.limiter.Release(&f.slot, now)
		if f.settlement.Deactivate != "" {
			d.limiter.Suspend(&f.slot)
		}
		d.leases.add(f, now)
	}
	for _, f := range batch {
		results <- f
	}
	clear(batch)
	d.finished = batch
}

// recorded ends attempts whose results are recorded, or given up.
func (d *dispatcher) recorded(batch []*inflight) {
	now := time.Now()
	for _, f := range batch {
		d.limiter.Recorded(&f.slot, now)
		d.leases.remove(f)
		if !f.Canceled() && len(d.free) < maxSettle { // or else someone may wait for its end
			*f = inflight{}
			d.free = append(d.free, f)
		}
	}
}

// suspend makes the webhooks of attempts whose results the store has not taken wait until
// it does.
func (d *dispatcher) suspend(batch []*inflight) {
	for _, f := range batch {
		d.limiter.Suspend(&f.slot)
	}
}

// newInflight returns the zero inflight.
func (d *dispatcher) newInflight() *inflight {
	last := len(d.free) - 1
	if last < 0 {
		return new(inflight)
	}
	f := d.free[last]
	d.free = d.free[:last]
	return f
}

// evict cuts short what is under way to a webhook that was deleted, and returns
// when nothing more will be sent to it by this process, or when ctx is done.
func (d *dispatcher) evict(ctx context.Context, webhook string) error {
	if err := d.awaitClaim(ctx); err != nil {
		return err
	}
	return d.limiter.Evict(ctx, webhook)
}

// evictAccount is evict for all webhooks of an account.
func (d *dispatcher) evictAccount(ctx context.Context, account string) error {
	if err := d.awaitClaim(ctx); err != nil {
		return err
	}
	return d.limiter.EvictAccount(ctx, account)
}

// awaitClaim returns once the claim under way has registered its attempts, or when ctx is done.
func (d *dispatcher) awaitClaim(ctx context.Context) error {
	select {
	case d.claiming <- struct{}{}:
		<-d.claiming
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
