package webhooks

import (
	"container/list"
	"time"
)

// A LimiterState tells how fast deliveries to a webhook may go at the moment.
type LimiterState struct {
	InFlight int  // attempts under way
	Cap      int  // how many there may be at most
	Failures int  // attempts that failed since the last one that did not
	Slow     bool // its attempts take long: they use the slots of the slow
	Down     bool // they all fail: it gets one probe at a time, the rest waits
}

// A condition is how a webhook's receiver does.
type condition uint8

const (
	fit    condition = iota
	slow             // its attempts take long
	ailing           // and the last one failed
	down             // its attempts all fail
)

// A track is what the pacer knows of one webhook.
type track struct {
	id        string
	account   *accountTrack
	condition condition
	flights   []*flight // in no order
	cut       int       // of them were cut short
	unproven  int       // of the others, those whose webhook was unproven when they were claimed
	unsettled int       // flights that have ended, and are leased until they are settled
	suspended int       // of them, those before which no other may begin

	cap      int
	filled   int       // successes in a row while the cap was used up, since it last changed
	ramping  bool      // it was down: the cap doubles once a rampStep at most
	raised   time.Time // when the cap last grew, while ramping
	failures int
	landings int // attempts that came to an end by themselves

	slow    bool      // attempts take long
	lagging int       // flights that have taken too long already
	lagged  time.Time // when one last did
	guessed bool      // nothing was known of it before it was taken for slow
	doubted bool      // that has happened once already, and was taken back
	hopeful bool      // somebody has reason to believe that it is up, since it last failed

	turn   time.Time     // unless fit: when it may next have attempts
	pause  time.Duration // down: between probes
	place  int           // in its line, parked or nowhere
	had    int           // flights when it was given a turn, and those since that are none of the turn's
	given  int           // turns that are being claimed
	active time.Time     // when a flight last began or ended
	seen   time.Time     // when it was last put at the end of pacer.tracked
	member *list.Element // of pacer.tracked
	capped int           // what pacer.caps says; unlisted: nothing

	health // the settler's
}

const trackedFor = 2 * time.Minute // a webhook that is idle

const (
	nowhere  = -1
	parked   = -2 // in accountTrack.parked
	unlisted = -1
)

// An accountTrack is what the pacer knows of one account.
type accountTrack struct {
	id string
	pool

	// parked are webhooks whose turn had come while the account held its share.
	// Those that are not parked any more are still in it, to be passed over.
	parked []*track
}

// held returns how many slots the webhook holds, those that are being vacated left
// out.
func (w *track) held() int { return len(w.flights) - w.cut }

// isIdle reports whether nothing is under way.
func (w *track) isIdle() bool { return len(w.flights) == 0 && w.unsettled == 0 }

// assess returns what the condition ought to be.
func (w *track) assess() condition {
	switch {
	case w.failures >= downAfter:
		return down
	case !w.slow:
		return fit
	case w.failures > 0:
		return ailing
	}
	return slow
}

// limit returns how many attempts may be in flight.
func (w *track) limit() int {
	if w.condition == down {
		return 1
	}
	return w.cap
}

// grow raises the cap, up to most, by one each time it was used up so many times
// with success; after an outage it doubles at most once a rampStep instead.
func (w *track) grow(full bool, most int, now time.Time) {
	switch {
	case !full || w.cap == most:
		w.ramping = w.ramping && w.cap < most
	case w.ramping:
		if now.Sub(w.raised) >= rampStep {
			w.cap, w.raised = min(2*w.cap, most), now
		}
	default:
		if w.filled++; w.filled >= w.cap {
			w.cap, w.filled = w.cap+1, 0
		}
	}
}

// restart begins with one attempt at a time.
func (w *track) restart(now time.Time) { w.cap, w.filled, w.ramping, w.raised = 1, 0, true, now }

// shrink halves the cap.
func (w *track) shrink(now time.Time) { w.cap, w.filled, w.raised = max(1, w.cap/2), 0, now }

// rest puts the webhook's next turn off by about its pause, and returns by how long.
func (w *track) rest(now time.Time) time.Duration {
	rest := jittered(w.pause, paceJitter)
	w.turn = now.Add(rest)
	return rest
}

// track returns the webhook's track, which may be new.
func (p *pacer) track(webhook *Webhook, now time.Time) *track {
	w := p.tracks[webhook.ID]
	if w == nil {
		a := p.accounts[webhook.Account]
		if a == nil {
			a = &accountTrack{id: webhook.Account, pool: pool{slots: p.perAccount}}
			p.accounts[a.id] = a
		}
		p.webhooks++
		a.webhooks++
		w = &track{id: webhook.ID, account: a, cap: p.firstCap, place: nowhere, capped: unlisted, seen: now}
		if !webhook.FailingSince.IsZero() { // as it was when it was forgotten, or the process ended
			w.failures, w.cap = downAfter-1, 1
		}
		w.member = p.tracked.PushBack(w)
		p.tracks[w.id] = w
	}
	return w
}

// forget drops the track of a webhook with nothing in flight.
func (p *pacer) forget(w *track) {
	p.lines[w.condition].take(w)
	delete(p.caps, w.id)
	p.raise(w, unlisted)
	delete(p.tracks, w.id)
	p.tracked.Remove(w.member)
	p.webhooks--
	if w.account.webhooks--; w.account.webhooks == 0 {
		delete(p.accounts, w.account.id)
	}
	p.unpark(w.account)
}

// forgetIdle drops the tracks of fit webhooks that have been idle for long.
func (p *pacer) forgetIdle(now time.Time) {
	for front := p.tracked.Front(); front != nil; front = p.tracked.Front() {
		w := front.Value.(*track)
		switch {
		case now.Sub(w.seen) < trackedFor:
			return
		case w.condition == fit && w.isIdle() && now.Sub(w.active) >= trackedFor:
			p.forget(w)
		default:
			w.seen = now
			p.tracked.MoveToBack(front)
		}
	}
}
