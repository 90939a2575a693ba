package limiter

import "time"

// A pool is a number of slots and how they are used: all that there are, those of one
// account, or those of unproven webhooks.
type pool struct {
	slots      int
	webhooks   int // that use it
	slow       int // of them, those that are slow
	inFlight   int
	restricted int // slots of webhooks that are not healthy, except attempts cut short
	offered    int // turns that are being claimed

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
	return share - p.restricted - p.offered
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
func (l *Limiter) count(w *webhook, slots, webhooks int) {
	for _, pool := range [2]*pool{&l.pool, &w.account.pool} {
		if w.health != healthy {
			pool.restricted += slots
		}
		if w.health == slow {
			pool.slow += webhooks
		}
	}
	if w.health.failing() {
		l.failing += slots
	}
	l.unpark(w.account)
}

// failingRoom returns how many slots more failing webhooks may have: an eighth of all
// between them, so that there is room for those that are slow, but succeed.
func (l *Limiter) failingRoom() int { return max(1, l.slots/8) - l.failing }

// countUnproven counts n slots more of the webhook as unproven.
func (l *Limiter) countUnproven(w *webhook, n int) {
	if w.unproven += n; w.health == healthy {
		l.unproven.inFlight += n
	}
}

// boundUnproven returns how many attempts more unproven webhooks may begin in a claim, and
// sets how many each may have in flight: firstCap until they have half of their slots,
// and then one.
func (l *Limiter) boundUnproven() int {
	room := l.unprovenRoom()
	l.unprovenBegun, l.unprovenLimit, l.perUnproven = 0, 0, l.firstCap
	if half := l.unproven.slots/2 - l.unproven.inFlight; half > 0 && half < room && !l.starved {
		return half
	}
	l.unprovenLimit, l.perUnproven = room, 1
	return room
}

// unprovenRoom returns how many slots more unproven webhooks may have. That is half of
// all; if slow ones have more than a quarter, what leaves a quarter of all, but an eighth
// at least.
func (l *Limiter) unprovenRoom() int {
	return max(0, min(l.unproven.slots, max(1, l.slots/8, l.slots*3/4-l.restricted))-l.unproven.inFlight)
}

// starve notes whether unproven webhooks wait for slots that they have not.
func (l *Limiter) starve(starved bool) {
	l.starved = starved
	l.overShare = l.overShare || starved && l.spare() < 0
}
