package webhooks

import (
	"context"
	"time"

	"github.com/storageapi/storageapi/webhooks/internal/limiter"
)

// An inflight is an attempt, from its claim until it is recorded.
type inflight struct {
	settlement Settlement // what is known of it so far: its task at first
	begun      time.Time
	stop       stop
	slot       limiter.Slot
	lease      lease
}

// webhook returns the id of the webhook.
func (f *inflight) webhook() string { return f.settlement.Task.Webhook.ID }

// The methods of [limiter.Attempt].

func (f *inflight) Cancel()                        { f.stop.now() }
func (f *inflight) Ended() bool                    { return f.stop.isOver() }
func (f *inflight) Wait(ctx context.Context) error { return f.stop.wait(ctx) }

// run makes the attempt and decides what becomes of its delivery.
func (d *dispatcher) run(f *inflight) {
	task := &f.settlement.Task
	var res result
	if task.Err != nil {
		res.attempt = Attempt{
			Number: task.Attempt, StartedAt: d.config.Now().UTC().Truncate(time.Millisecond),
			Class: ClassInternal, Error: "the stored record cannot be read",
		}
	} else {
		res = d.client.attempt(&f.stop, task)
	}
	f.stop.end()
	d.judge(&f.settlement, res)
	d.heed(res)
}

// judge decides what becomes of a delivery after an attempt.
func (d *dispatcher) judge(s *Settlement, res result) {
	s.Attempt = res.attempt
	switch {
	case res.attempt.Error == "":
		s.Outcome = Deliver
	case res.canceled, res.fault != theirs:
		s.Outcome = Release
	case res.gone:
		s.Outcome, s.Deactivate = GiveUp, OffGone
	default:
		s.Outcome = GiveUp
		if wait, ok := nextRetry(d.config.Retries, d.config.RetryJitter, s.Task.Attempt-s.Task.Before, res.retryAfter); ok {
			s.Outcome, s.RetryAfter = Retry, wait
		}
	}
}

// heed makes the dispatcher pause, or go on, after an attempt that shows whether this
// host can make any.
func (d *dispatcher) heed(res result) {
	switch {
	case res.canceled, res.fault == crowded:
	case res.fault != theirs:
		d.client.conns.close() // they may be what there is too much of
		if pause, tell := d.respite.begin(time.Now()); tell {
			d.config.Logger.Error("storageapi: no webhook can be reached from here: deliveries pause, and no attempts are used up",
				"error", res.attempt.Error, "again_in", pause)
		}
	case res.attempt.Status != 0 && d.respite.on.Load():
		d.respite.end()
	}
}

// shows returns what a settlement shows of the receiver.
func (s *Settlement) shows() limiter.Outcome {
	switch {
	case s.Outcome == Deliver:
		return limiter.Success
	case s.Fails():
		return limiter.Failure
	}
	return limiter.Unknown
}
