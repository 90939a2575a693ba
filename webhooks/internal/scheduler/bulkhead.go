package scheduler

import "time"

// A pool counts how slots are used: all slots, those of one account, or those for unproven
// webhooks.
type pool struct {
	slots      int
	webhooks   int // that use it
	slow       int // of them, those that are slow
	inFlight   int
	restricted int // slots of webhooks that are not healthy, except attempts cut short

	starved   bool // unproven webhooks wait for slots
	searching bool // attempts were just found to take too long, and there may be more

	finished   int       // attempts that ended by themselves
	finishedAt time.Time // the last one
}

func (p *pool) full() bool { return p.inFlight >= p.slots }
func (p *pool) free() int  { return p.slots - p.inFlight }

// spare returns how many slots more webhooks that are not healthy may have. Their share
// is a quarter. If more than a quarter of all webhooks are slow, their share is as large
// as their part of the webhooks, up to three quarters: if nearly all are slow, there are
// few to be kept from them. While it is being found out which are slow, and while
// unproven webhooks wait, it is a quarter.
func (p *pool) spare() int {
	share := max(1, p.slots/4)
	if !p.starved && !p.searching {
		share = max(share, min(p.slots*p.slow/max(1, p.webhooks), p.slots*3/4))
	}
	return share - p.restricted
}

func (p *pool) finish(now time.Time) { p.finished, p.finishedAt = p.finished+1, now }

// mark returns how many attempts will have finished once all that is in flight has.
func (p *pool) mark() int { return p.finished + p.inFlight }

// blocked reports whether the pool is full, and an attempt with that mark is in the way.
func (p *pool) blocked(mark int, now time.Time, limit time.Duration) bool {
	return p.full() && p.stuck(mark, now, limit)
}

// stuck reports whether as many attempts as there are slots have overtaken the one with
// that mark, or none has finished for as long as limit.
func (p *pool) stuck(mark int, now time.Time, limit time.Duration) bool {
	return p.finished-mark >= p.slots || now.Sub(p.finishedAt) >= limit
}

// count counts slots, and webhooks of its health, as the webhook's.
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

// failingRoom returns how many slots more failing webhooks may have: an eighth of all
// between them, so that there is room for those that are slow, but succeed.
func (s *Scheduler) failingRoom() int { return max(1, s.slots/8) - s.failing }

// countUnproven counts n slots more of the webhook as unproven.
func (s *Scheduler) countUnproven(w *webhook, n int) {
	if w.unproven += n; w.health == healthy {
		s.unproven.inFlight += n
	}
}

// boundUnproven returns how many attempts more unproven webhooks may begin in a Next, and
// sets how many each may have in flight: firstCap until they have half of their slots,
// and then one.
func (s *Scheduler) boundUnproven() int {
	room := s.unprovenRoom()
	s.unprovenBegun, s.unprovenLimit, s.perUnproven = 0, 0, s.firstCap
	if half := s.unproven.slots/2 - s.unproven.inFlight; half > 0 && half < room && !s.starved {
		return half
	}
	s.unprovenLimit, s.perUnproven = room, 1
	return room
}

// unprovenRoom returns how many slots more unproven webhooks may have. That is half of
// all; if slow ones have more than a quarter, what leaves a quarter of all, but an eighth
// at least.
func (s *Scheduler) unprovenRoom() int {
	return max(0, min(s.unproven.slots, max(1, s.slots/8, s.slots*3/4-s.restricted))-s.unproven.inFlight)
}

// starve notes whether unproven webhooks wait for slots that they have not.
func (s *Scheduler) starve(starved bool) {
	s.starved = starved
	s.overShare = s.overShare || starved && s.spare() < 0
}
