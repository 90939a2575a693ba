package scheduler

import "time"

// A pool counts the use of a set of slots: all slots, the slots of one account, or the slots for
// unproven webhooks.
type pool struct {
	slots      int
	webhooks   int // known webhooks
	slow       int // known webhooks that are slow
	inFlight   int
	restricted int // slots of unhealthy webhooks, except canceled attempts

	starved   bool // unproven webhooks wait for slots
	searching bool // an attempt was just found to be late, and more may be

	finished   int       // number of attempts that ended without being canceled
	finishedAt time.Time // end of the latest of these
}

func (p *pool) full() bool { return p.inFlight >= p.slots }
func (p *pool) free() int  { return p.slots - p.inFlight }

// spare returns how many more slots unhealthy webhooks may take. Their share of the slots equals
// the share of slow webhooks among all webhooks, but is at least one quarter and at most three
// quarters: if nearly all webhooks are slow, few others need protection. While searching or
// starved, it is a quarter.
func (p *pool) spare() int {
	share := max(1, p.slots/4)
	if !p.starved && !p.searching {
		share = max(share, min(p.slots*p.slow/max(1, p.webhooks), p.slots*3/4))
	}
	return share - p.restricted
}

func (p *pool) finish(now time.Time) { p.finished, p.finishedAt = p.finished+1, now }

// mark returns the value that finished will have once all attempts in flight have finished.
func (p *pool) mark() int { return p.finished + p.inFlight }

// blocked reports whether the pool is full, and the attempt with the given mark is stuck.
func (p *pool) blocked(mark int, now time.Time, limit time.Duration) bool {
	return p.full() && p.stuck(mark, now, limit)
}

// stuck reports whether at least p.slots later attempts finished before the attempt with the given
// mark, or no attempt has finished for at least limit.
func (p *pool) stuck(mark int, now time.Time, limit time.Duration) bool {
	return p.finished-mark >= p.slots || now.Sub(p.finishedAt) >= limit
}

// count adds slots and webhooks that have the health of w to the counters of unhealthy slots and
// slow webhooks. Negative numbers subtract.
func (s *Scheduler) count(w *webhook, slots, webhooks int) {
	for _, pool := range [2]*pool{&s.pool, &w.account.pool} {
		if w.health != healthy {
			pool.restricted += slots
		}
		if w.health == slow {
			pool.slow += webhooks
		}
	}
	if w.health.failing() {
		s.failing += slots
	}
	s.unpark(w.account)
}

// failingRoom returns how many more slots failing webhooks may take. Their limit is an eighth of
// all slots, which leaves room for slow webhooks whose attempts succeed.
func (s *Scheduler) failingRoom() int { return max(1, s.slots/8) - s.failing }

// countUnproven adds n to the unproven slots of w.
func (s *Scheduler) countUnproven(w *webhook, n int) {
	if w.unproven += n; w.health == healthy {
		s.unproven.inFlight += n
	}
}

// boundUnproven returns how many attempts unproven webhooks may begin in the current Next. It
// also sets the limit per webhook: firstCap until half of the unproven slots are taken, then one.
func (s *Scheduler) boundUnproven() int {
	room := s.unprovenRoom()
	s.unprovenBegun, s.unprovenLimit, s.perUnproven = 0, 0, s.firstCap
	if half := s.unproven.slots/2 - s.unproven.inFlight; half > 0 && half < room && !s.starved {
		return half
	}
	s.unprovenLimit, s.perUnproven = room, 1
	return room
}

// unprovenRoom returns how many more slots unproven webhooks may take. Their limit is half of all
// slots. If unhealthy webhooks hold more than a quarter, the limit shrinks so that a quarter is
// left for others, but it is at least an eighth.
func (s *Scheduler) unprovenRoom() int {
	return max(0, min(s.unproven.slots, max(1, s.slots/8, s.slots*3/4-s.restricted))-s.unproven.inFlight)
}

// starve records whether unproven webhooks wait for slots.
func (s *Scheduler) starve(starved bool) {
	s.starved = starved
	s.overShare = s.overShare || starved && s.spare() < 0
}
