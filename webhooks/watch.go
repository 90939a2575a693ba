package webhooks

import "time"

const (
	lateBy     = 5                      // times what is usual: an attempt that takes longer makes its webhook slow,
	lateAfter  = time.Second            // but not if it takes less than this,
	hurryAfter = 100 * time.Millisecond // or where slots are short, than this
	lookPause  = 20 * time.Millisecond  // between two looks at what is in flight

	// As long as little is known of what is usual, an attempt to an unproven webhook is
	// late after this where slots are short. To a proven one it is not: after a start,
	// receivers that take some 100 ms would get much of the backlog twice.
	firstPatience = 150 * time.Millisecond
	usualOf       = 64 // successes, of late
)

// patience is how long an attempt may take before it is late, which depends on
// whether slots are short. While attempts take long for all it is the network, or
// this process, and no one is to blame.
func (p *pacer) patience(short bool) time.Duration {
	least := lateAfter
	if short && p.successes >= usualOf {
		least = hurryAfter
	}
	return min(max(lateBy*p.usual, least), p.longest)
}

// late reports whether a flight of that age takes too long, where slots are short
// or not.
func (p *pacer) late(f *flight, age time.Duration, now time.Time) bool {
	hurry := p.hurry(f.unproven)
	short := p.blocked(f.passed, now, hurry) || f.track.account.blocked(f.passedOwn, now, hurry) ||
		f.unproven && p.awaited && p.unproven.stuck(f.passedUnproven, now, hurry) || f.asked && p.asks() == 0
	return short && age >= hurry || age >= p.patience(false)
}

// hurry returns the patience with a flight where slots are short, by whether its webhook
// was unproven.
func (p *pacer) hurry(unproven bool) time.Duration {
	if unproven && p.successes < usualOf {
		return firstPatience
	}
	return p.patience(true)
}

// leastPatience returns how long no flight is late.
func (p *pacer) leastPatience() time.Duration {
	if p.short() {
		return p.hurry(true)
	}
	return p.patience(false)
}

// short reports whether slots are, of all, of an account or of those that are kept for
// some.
func (p *pacer) short() bool { return p.full() || p.awaited || p.crowded > 0 || p.asks() == 0 }

// squeezes reports whether webhooks that are not fit hold slots beyond their share
// while others wait for some.
func (p *pacer) squeezes(a *accountTrack) bool {
	return (p.full() || p.awaited) && p.spare() < 0 || a.full() && a.spare() < 0
}

// look finds the flights that take too long, and cuts short those that hold more
// slots than they may where slots are short.
func (p *pacer) look(now time.Time) {
	p.forgetIdle(now)
	if at := p.nextLook(); at.IsZero() || at.After(now) {
		return
	}
	if !p.planned.IsZero() && now.Sub(p.planned) > hurryAfter/2 {
		p.resumed = now // this process had no time, for its receivers neither
	}
	p.looked, p.squeezed, p.seeking = now, false, false
	least := p.leastPatience()
	for at := p.young.Front(); at != nil; {
		f := at.Value.(*flight)
		at = at.Next()
		age := now.Sub(f.since(p.resumed))
		switch {
		case f.stop.isOver():
			p.dismiss(f)
		case age < least:
			at = nil
		case p.late(f, age, now):
			p.dismiss(f)
			f.lagging, p.seeking = true, true
			w := f.track
			w.lagging++
			w.guessed = !w.slow && w.landings == 0
			w.slow, w.lagged = true, now
			if w.condition == fit {
				w.turn = now
			}
			p.become(w, w.assess())
			if !f.inTurn {
				f.member = p.tardy.PushBack(f)
			}
		}
	}
	p.relieve()
}

// relieve cuts short, oldest first, what webhooks that are not fit hold beyond
// their share of the slots, or of their account's, if all are taken.
func (p *pacer) relieve() {
	for at := p.tardy.Front(); at != nil; {
		f := at.Value.(*flight)
		at = at.Next()
		if p.squeezes(f.track.account) || f.asked && p.asks() == 0 {
			p.cut(f)
		}
	}
}

// nextLook returns when look has something to do next; zero: when something has
// begun.
func (p *pacer) nextLook() time.Time {
	front := p.young.Front()
	pause := p.looked.Add(lookPause)
	switch {
	case p.squeezed && p.tardy.Len() > 0:
		return pause
	case front == nil:
		return time.Time{}
	}
	return latest(pause, front.Value.(*flight).since(p.resumed).Add(p.leastPatience()))
}

// dismiss takes the flight out of young or tardy.
func (p *pacer) dismiss(f *flight) {
	if f.member == nil {
		return
	}
	p.young.Remove(f.member) // does nothing if it is not
	p.tardy.Remove(f.member)
	f.member = nil
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
