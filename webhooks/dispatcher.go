package webhooks

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/storageapi/storageapi/internal/jitter"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks/internal/scheduler"
)

// A dispatcher runs the attempts that the scheduler begins, and passes their results to a settler,
// which records them.
type dispatcher struct {
	store     driver.WebhookStore
	sender    *sender
	config    Config
	activity  *activity
	halt      *halt
	reporter  *reporter
	entries   *entryMaker
	scheduler *scheduler.Scheduler
	outage    scheduler.Outage
	jitter    jitter.Source // for the waits between attempts and between probes
	waking    chan struct{} // signals that a delivery may have become due

	// failing is set while results cannot be recorded. Attempts then do not begin, because their
	// results might be lost. The exception is an occasional trial, which shows whether the store
	// fails or only rejects some results.
	failing atomic.Bool

	// The run loop owns these buffers.
	claimed  []*inflight          // reused by claims
	refs     []driver.DeliveryRef // reused by claims
	finished []*inflight          // reused by freeSlots
	free     []*inflight          // already recorded, for reuse
}

func newDispatcher(store driver.WebhookStore, sender *sender, config Config, notify bool) *dispatcher {
	activity := newActivity()
	d := &dispatcher{
		activity: activity,
		store:    store,
		sender:   sender,
		config:   config,
		halt:     &halt{store: store, logger: config.Logger, activity: activity},
		reporter: newReporter(store, config),
		entries:  &entryMaker{now: config.Now, notify: notify},
		waking:   make(chan struct{}, 1),
	}
	d.scheduler = scheduler.New(scheduler.Config{
		Slots: config.Concurrency.Total, PerWebhook: config.Concurrency.PerWebhook, PerAccount: config.Concurrency.PerAccount,
		MaxUnrecorded: maxSettle, Timeout: config.Outbound.Timeout, LongestRetry: longestRetry(config.Retry.Delays, config.Retry.Jitter),
		Jitter: &d.jitter, Wall: config.Now, Wake: d.wake,
	})
	return d
}

// wake makes a running dispatcher look for due deliveries now.
func (d *dispatcher) wake() {
	select {
	case d.waking <- struct{}{}:
	default:
	}
}

// probe requests an attempt for the webhook, by any process, even if its receiver is down. It only
// logs an error of the store, because the next regular probe follows within about a minute.
func (d *dispatcher) probe(ctx context.Context, account, webhookID string) {
	if err := d.store.Probe(ctx, account, webhookID); err != nil && ctx.Err() == nil {
		d.config.Logger.Warn("storageapi: webhook store failed", "step", "probe", "account", account, "webhook", webhookID, "error", err)
	}
}

// retrust is like probe, for a webhook that is probably up. It also discards most of what the
// limiter has learned about the receiver.
func (d *dispatcher) retrust(ctx context.Context, account, webhookID string) {
	d.probe(ctx, account, webhookID) // comes first, so that the probe is the next attempt
	d.scheduler.Trust(webhookID)
	d.wake()
}

// deliver makes deliveries until ctx is done, then waits for running attempts.
func (d *dispatcher) deliver(ctx context.Context) {
	d.failing.Store(false)

	// Attempts may outlive ctx by the drain timeout.
	attempts, cutShort := context.WithCancel(context.WithoutCancel(ctx))
	defer cutShort()
	// Sends to these channels never block: Scheduler.Room limits the number of attempts.
	finished := make(chan *inflight, d.config.Concurrency.Total)
	settler := newSettler(d, d.config.Concurrency.Total+maxSettle)
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
				d.freeSlots(f, finished, settler.results)
			case batch := <-settler.recorded:
				d.recorded(batch)
			case batch := <-settler.rejected:
				d.suspend(batch)
			case <-d.waking:
			case <-timer.C:
			case <-beat.C:
				idle = !d.scheduler.CheckClock()
			}
		}
	}

	d.activity.enter(RunDraining)
	late := time.AfterFunc(max(d.config.Outbound.DrainTimeout, 0), cutShort)
	defer late.Stop()
	tooLate := attempts.Done()
	for d.scheduler.Busy() {
		select {
		case <-tooLate:
			tooLate = nil
			d.scheduler.CancelAll()
		case f := <-finished:
			d.freeSlots(f, finished, settler.results)
		case batch := <-settler.recorded:
			d.recorded(batch)
		case batch := <-settler.rejected:
			d.suspend(batch)
		}
	}
}

// freeSlots frees the slots of f and of all other finished attempts, and passes the attempts to
// the settler. Other attempts can use the slots before the results are recorded.
func (d *dispatcher) freeSlots(f *inflight, finished <-chan *inflight, results chan<- *inflight) {
	runtime.Gosched() // lets attempts that are about to finish join the batch
	batch := append(d.finished[:0], f)
	for more := true; more; {
		select {
		case f := <-finished:
			batch = append(batch, f)
		default:
			more = false
		}
	}
	for _, f := range batch {
		s := &f.settlement
		d.scheduler.Observe(&f.slot, s.evidence(), s.Attempt.Duration)
	}
	for _, f := range batch {
		d.scheduler.FreeSlot(&f.slot, f.settlement.Deactivate != "")
	}
	for _, f := range batch {
		results <- f
	}
	clear(batch)
	d.finished = batch
}

// recorded ends attempts whose results were recorded or given up.
func (d *dispatcher) recorded(batch []*inflight) {
	for _, f := range batch {
		d.scheduler.End(&f.slot, f.fate)
		d.reuse(f)
	}
}

// reuse keeps an inflight for reuse, unless a caller may still wait for its end.
func (d *dispatcher) reuse(f *inflight) {
	if !f.Canceled() && len(d.free) < maxSettle {
		*f = inflight{}
		d.free = append(d.free, f)
	}
}

// suspend stops new attempts for the webhooks of these attempts until the store accepts their
// results.
func (d *dispatcher) suspend(batch []*inflight) {
	for _, f := range batch {
		d.scheduler.Suspend(&f.slot)
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

// evict cancels the running attempts for a deleted webhook or for an account. It returns when this
// process sends no more such requests, or when ctx is done.
func (d *dispatcher) evict(ctx context.Context, webhookID, account string) error {
	return d.scheduler.Evict(ctx, webhookID, account)
}
