package webhooks

import (
	"container/list"
	"time"
)

// A flight is an attempt, from its claim until it is settled.
type flight struct {
	settlement Settlement // what is known of it so far: its task at first
	stop       stop

	// What follows is the pacer's.
	track             *track
	begun             time.Time
	inTurn            bool // claimed in a turn of a webhook that is not fit: never cut short
	probe             bool // in one of a webhook that is down
	asked             bool // somebody asked for it, see Store.Probe
	unproven          bool // its webhook was when it was claimed
	cut               bool // cut short to vacate its slot
	lagging           bool // it has taken too long
	passed, passedOwn int  // at how many landings, of all and of its account, those begun before it have landed
	passedUnproven    int  // and of the unproven
	place             int  // in track.flights
	ended             time.Time
	waits             int // in waiting.flights, once it has ended
	member            *list.Element

	suspends bool // no other to its webhook may begin before it is settled
	watched  bool // somebody waits for its end
}

// suspend lets no other flight to the webhook begin before this one is settled.
func (f *flight) suspend() {
	if !f.suspends {
		f.suspends = true
		f.track.suspended++
	}
}

// since returns when the flight began, or at if that is later.
func (f *flight) since(at time.Time) time.Time { return latest(f.begun, at) }

// fly makes one attempt and hands on what came of it.
func (d *dispatcher) fly(f *flight, landed chan<- *flight) {
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
	landed <- f
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
