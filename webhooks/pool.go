package webhooks

import "time"

// A pool is a number of slots, each for one attempt at a time, and how they are
// used: all that there are, or those of one account.
type pool struct {
	slots    int
	webhooks int // that use it
	slowly   int // of them, those that are slow
	inFlight int
	troubled int // to webhooks that are not fit, but for those cut short
	offered  int // turns that are being claimed

	awaited bool // unproven webhooks wait for slots
	seeking bool // it has just been found that attempts take too long, and there may be more

	landings int       // attempts that came to an end by themselves
	landedAt time.Time // the last one
}

func (p *pool) full() bool { return p.inFlight >= p.slots }

// spare returns how many slots more webhooks that are not fit may have. Their share
// is a quarter, or if more of all webhooks are slow, as much as that, but no more
// than three quarters: if nearly all are slow, there are few to be kept from them.
// While it is being found out which are, and while unproven webhooks wait, it is a
// quarter.
func (p *pool) spare() int {
	share := max(1, p.slots/4)
	if !p.awaited && !p.seeking {
		share = max(share, min(p.slots*p.slowly/max(1, p.webhooks), p.slots*3/4))
	}
	return share - p.troubled - p.offered
}

// passed returns how many landings there will have been once all that is in flight
// has landed.
func (p *pool) passed() int { return p.landings + p.inFlight }

// blocked reports whether the pool is full, and an attempt is in the way that began
// when passed was as given: as many as there are slots have overtaken it, or no one
// gets anywhere for as long as patience.
func (p *pool) blocked(passed int, now time.Time, patience time.Duration) bool {
	return p.full() && p.stuck(passed, now, patience)
}

func (p *pool) stuck(passed int, now time.Time, patience time.Duration) bool {
	return p.landings-passed >= p.slots || now.Sub(p.landedAt) >= patience
}
