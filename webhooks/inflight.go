package webhooks

import (
	"sync/atomic"
	"time"

	"github.com/storageapi/storageapi/webhooks/internal/outbound"
	"github.com/storageapi/storageapi/webhooks/internal/scheduler"
)

// An inflight is an attempt, from its claim until it is recorded.
type inflight struct {
	settlement settlement // what is known of it so far: its task at first
	begun      time.Time
	outbound.Canceler
	slot scheduler.Slot
	fate scheduler.Fate // once it is recorded
}

// run makes the attempt and decides what becomes of its delivery.
func (d *dispatcher) run(f *inflight) {
	if s := &f.settlement; s.Task.Err == nil && d.config.Retention.expires(s.Task.Age) {
		s.Outcome, s.Attempt = GiveUp, ExpiredAttempt(s.Task.Attempt, d.config.Now())
		f.End()
		return
	}
	res := d.sender.attempt(&f.Canceler, &f.settlement.Task)
	f.End()
	d.judge(&f.settlement, res)
	d.heed(res)
}

// heed makes claims pause, or go on, after an attempt that shows whether this host can
// make any.
func (d *dispatcher) heed(res result) {
	switch {
	case res.canceled, res.fault == outbound.Busy:
	case res.fault != outbound.Theirs:
		d.sender.client.CloseIdle() // they may be what there is too much of
		if pause, tell := d.outage.Begin(time.Now()); tell {
			d.config.Logger.Error("storageapi: no webhook can be reached from here: deliveries pause, and no attempts are used up",
				"error", res.attempt.Error, "again_in", pause)
		}
	case res.attempt.Status != 0:
		d.outage.End()
	}
}

// shows returns what a settlement shows of the receiver.
func (s *settlement) shows() scheduler.Outcome {
	switch {
	case s.delivers():
		return scheduler.Success
	case s.fails():
		return scheduler.Failure
	}
	return scheduler.Unknown
}

// A workerPool makes attempts, each on a goroutine of its own while it lasts. Goroutines
// are used again: TLS needs a large stack, and growing one costs as much as the
// encryption.
type workerPool struct {
	run  func(*inflight)
	work chan *inflight // closed when there is no more
	idle atomic.Int64   // goroutines that wait for work
}

const maxIdleWorkers = 64 // more of them end

func newWorkerPool(run func(*inflight)) *workerPool {
	return &workerPool{run: run, work: make(chan *inflight)}
}

// start begins an attempt.
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
