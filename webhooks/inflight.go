package webhooks

import (
	"sync/atomic"
	"time"

	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks/internal/outbound"
	"github.com/storageapi/storageapi/webhooks/internal/scheduler"
)

// An inflight is an attempt that has been claimed and whose result is not yet recorded.
type inflight struct {
	settlement settlement // its fields are set step by step, the task first
	begun      time.Time
	outbound.Canceler
	slot scheduler.Slot
	fate scheduler.Fate // set once the result is recorded
}

// run makes the attempt and decides the outcome of its delivery.
func (d *dispatcher) run(f *inflight) {
	switch s := &f.settlement; {
	case s.Task.Err != nil:
	case d.config.Retention.expires(s.Task.Age):
		s.Effect, s.Attempt = driver.GiveUp, driver.ExpiredAttempt(s.Task.Attempt, d.config.Now())
		f.End()
		return
	case !s.Task.Webhook.Resources.Allows(s.Task.Event.Resource): // limited since the event was published
		s.Effect, s.Attempt = driver.GiveUp, driver.Attempt{
			Number: s.Task.Attempt, StartedAt: d.config.Now().UTC().Truncate(time.Millisecond), Class: ClassResource,
			Error: "the webhook is now limited to other resources",
		}
		f.End()
		return
	}
	res := d.sender.attempt(&f.Canceler, &f.settlement.Task)
	f.End()
	d.decide(&f.settlement, res)
	d.noteReachability(res)
}

// noteReachability pauses or resumes claims after an attempt that shows whether this host can
// reach any receiver.
func (d *dispatcher) noteReachability(res result) {
	switch {
	case res.canceled, res.fault == outbound.Busy:
	case res.fault != outbound.Theirs:
		d.sender.client.CloseIdle() // too many idle connections may be the cause
		if pause, tell := d.outage.Begin(time.Now()); tell {
			d.config.Logger.Error("storageapi: no webhook is reachable from this host; deliveries are paused, and no attempts are used up",
				"error", res.attempt.Error, "again_in", pause)
		}
	case res.attempt.Status != 0:
		d.outage.End()
	}
}

// evidence classifies the attempt for the limiter.
func (s *settlement) evidence() scheduler.Evidence {
	switch {
	case s.delivers():
		return scheduler.Success
	case s.fails():
		return scheduler.Failure
	}
	return scheduler.Unknown
}

// A workerPool makes each attempt on a separate goroutine. Goroutines are reused, because TLS
// needs a large stack, and growing one costs about as much as the encryption.
type workerPool struct {
	run  func(*inflight)
	work chan *inflight // closed when there is no more work
	idle atomic.Int64   // goroutines that wait for work
}

const maxIdleWorkers = 64 // further goroutines end after their attempt

func newWorkerPool(run func(*inflight)) *workerPool {
	return &workerPool{run: run, work: make(chan *inflight)}
}

// start makes an attempt on an idle or a new goroutine.
func (p *workerPool) start(f *inflight) {
	select {
	case p.work <- f:
	default:
		go p.serve(f)
	}
}

func (p *workerPool) serve(f *inflight) {
	for more := true; more; {
		p.run(f)
		if p.idle.Add(1) > maxIdleWorkers {
			p.idle.Add(-1)
			return
		}
		f, more = <-p.work
		p.idle.Add(-1)
	}
}
