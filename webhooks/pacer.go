package webhooks

import (
	"container/list"
	"slices"
	"time"
)

const (
	firstCap   = 2                // attempts in flight to a webhook of which nothing is known
	slowFor    = 10 * time.Second // at least
	downAfter  = 5                // failures in a row
	minProbe   = time.Second      // pauses between probes: they double
	maxProbe   = time.Minute
	rampStep   = time.Second
	paceJitter = 0.2
)

// A pacer decides how many attempts each webhook may have in flight, so that no
// receiver gets more than it can take, and none takes the slots of the others.
//
// A webhook begins with firstCap slots. Success raises its cap, failure halves
// it. One whose attempts take long is slow, one whose attempts all fail is down
// and gets one probe at a time. These are claimed apart from the rest, in turns
// among themselves, and all of them together hold no more than a share of the
// slots; so do those of one account of the account's. Attempts that
// were begun before their webhook was known to be slow are cut short beyond the
// share, once slots are short.
//
// Nor do webhooks that are unproven as yet, see [Webhook.Proven], get more than a part
// of the slots: those that have shown that they take events do not wait behind them,
// whatever comes of them.
//
// It knows the webhooks with something in flight, and for a while those that had.
// The dispatcher's run loop alone changes it, with the dispatcher's mutex held.
type pacer struct {
	pool
	perWebhook, perAccount, firstCap int

	tracks   map[string]*track
	tracked  list.List // all of them, what was not seen to be in use for the longest time first
	accounts map[string]*accountTrack
	caps     map[string]int // of webhooks for which firstCap is not right, for [Claim.Caps]
	raised   []string       // those whose cap in caps is 0 no more, for [Claim.Raised]
	unproven pool           // the slots that fit webhooks have which were unproven when these were claimed
	asked    int            // flights that somebody asked for, see [Store.Probe], but for those cut short
	lines    [4]line        // by condition; no fit webhook is in one

	offers map[string]int // the caps of a claim of turns
	chosen []*track       // in that claim
	beat   time.Time      // when those have their next turn for which nothing was due

	spares    []*flight     // that are over, to be used again
	unsettled int           // that have ended, and are leased until they are settled
	waiting   waiting       // they
	failing   int           // flights to webhooks that are ailing or down, but for those cut short
	crowded   int           // accounts that have as much in flight as they may
	young     list.List     // flights that have not taken too long yet, oldest first
	tardy     list.List     // flights that have, and may be cut short, oldest first
	usual     time.Duration // how long attempts take that succeed
	successes int           // that this is known from: usualOf at least, or it is not
	longest   time.Duration // that none is not late

	squeezed bool      // slots became short while some hold more than their share
	looked   time.Time // when it was last looked at what is in flight
	planned  time.Time // when that was to be done next
	resumed  time.Time // when that last was done late: what was in flight then is not held to blame
}

func newPacer(config Config) *pacer {
	return &pacer{
		pool:       pool{slots: config.Concurrency},
		perWebhook: config.PerWebhook,
		perAccount: config.PerAccount,
		firstCap:   min(firstCap, config.PerWebhook),
		tracks:     make(map[string]*track),
		accounts:   make(map[string]*accountTrack),
		caps:       make(map[string]int),
		offers:     make(map[string]int),
		unproven:   pool{slots: max(1, config.Concurrency/2)},
		longest:    max(lateAfter, config.Timeout/2),
	}
}

// free returns how many slots are.
func (p *pacer) free() int { return p.slots - p.inFlight }

// room returns how many deliveries may be claimed: as many as there are slots free,
// unless too many results wait to be settled.
func (p *pacer) room() int { return min(p.free(), p.slots+maxSettle-p.inFlight-p.unsettled) }

// flight returns a new flight.
func (p *pacer) flight() *flight {
	last := len(p.spares) - 1
	if last < 0 {
		return new(flight)
	}
	f := p.spares[last]
	p.spares = p.spares[:last]
	return f
}

// begin registers a flight.
func (p *pacer) begin(f *flight) {
	w := p.track(f.settlement.Task.Webhook, f.begun)
	f.track, f.place, f.probe = w, len(w.flights), w.condition == down
	f.passed, f.passedOwn, f.passedUnproven = p.passed(), w.account.passed(), p.unproven.passed()
	w.flights = append(w.flights, f)
	if f.settlement.Task.Probe {
		p.ask(w, f)
	}
	if f.unproven = !f.settlement.Task.Webhook.Proven(); f.unproven {
		p.countUnproven(w, 1)
	}
	w.active = f.begun
	f.member = p.young.PushBack(f)
	p.inFlight++
	if w.account.inFlight++; w.account.inFlight == p.perAccount {
		p.crowded++
	}
	p.count(w, 1, 0)
	p.arrange(w)
	p.squeezed = p.squeezed || p.squeezes(w.account)
}

// cut cuts a flight short.
func (p *pacer) cut(f *flight) {
	p.dismiss(f)
	f.cut = true
	f.track.cut++
	p.count(f.track, -1, 0)
	p.uncount(f)
	f.stop.now()
}

// uncount ends that a flight counts as one that was asked for, or as unproven.
func (p *pacer) uncount(f *flight) {
	if f.asked {
		p.asked--
	}
	if f.unproven {
		p.countUnproven(f.track, -1)
	}
	f.asked, f.unproven = false, false
}

// end learns from flights that have landed, and vacates their slots.
func (p *pacer) end(flights []*flight, now time.Time) {
	for _, f := range flights {
		p.learn(f, now)
	}
	for _, f := range flights {
		w := f.track
		p.dismiss(f)
		last := len(w.flights) - 1
		w.flights[f.place] = w.flights[last]
		w.flights[f.place].place = f.place
		w.flights[last] = nil
		w.flights = w.flights[:last]
		w.active = now
		if f.lagging {
			w.lagging--
		}
		if w.account.inFlight == p.perAccount {
			p.crowded--
		}
		p.inFlight--
		w.account.inFlight--
		if f.cut {
			w.cut--
			if w.guessed && !w.doubted && w.lagging == 0 { // it may have been this process that had no time
				w.guessed, w.doubted, w.slow = false, true, false
				p.become(w, w.assess())
			}
		} else {
			p.count(w, -1, 0)
			p.uncount(f)
		}
		p.unsettled++
		w.unsettled++
		p.waiting.add(f, now)
		if f.settlement.Deactivate != "" {
			f.suspend()
		}
		p.arrange(w)
	}
}

// settled notes that flights that have ended are leased no more. That is the end of
// them, but for those that somebody waits for.
func (p *pacer) settled(flights []*flight) {
	for _, f := range flights {
		p.unsettled--
		p.waiting.remove(f)
		f.track.unsettled--
		if f.suspends {
			f.track.suspended--
			p.arrange(f.track)
		}
		if !f.watched && len(p.spares) < maxSettle {
			*f = flight{}
			p.spares = append(p.spares, f)
		}
	}
}

// suspend makes the webhooks of flights that the store has not taken the settlements
// of wait until it does.
func (p *pacer) suspend(flights []*flight) {
	for _, f := range flights {
		f.suspend()
		p.arrange(f.track)
	}
}

// learn draws conclusions from what came of a flight. What was no fault of the
// receiver's, and no merit, means nothing.
func (p *pacer) learn(f *flight, now time.Time) {
	w, took, failed := f.track, f.settlement.Attempt.Duration, f.settlement.Fails()
	usual := w.condition == fit
	switch {
	case !failed && f.settlement.Outcome != Deliver:
		return
	case took > p.patience(false):
		w.slow, w.lagged = true, now
	case !failed && w.guessed && w.lagging == 0:
		w.slow, usual = false, true
	case took <= p.patience(p.full() || w.account.full()) && w.lagging == 0 && now.Sub(w.lagged) >= slowFor:
		w.slow = false
	}
	w.guessed = false
	w.landings++
	for _, pool := range [2]*pool{&p.pool, &w.account.pool} {
		pool.landings++
		pool.landedAt = now
	}
	if f.unproven {
		p.unproven.landings++
		p.unproven.landedAt = now
	}
	switch was := w.condition; {
	case failed:
		w.failures++
		if !w.hopeful && !f.asked && w.failures == downAfter { // or else it goes on
			w.pause = 0
		}
		w.hopeful = false
		w.shrink(now)
		switch {
		case w.failures == downAfter:
			w.pause = max(w.pause, minProbe)
			f.settlement.Rest = w.rest(now)
		case f.probe && !f.asked && was == down: // what somebody asks for does not lengthen the pause
			w.pause = min(2*w.pause, maxProbe)
			f.settlement.Rest = w.rest(now)
		}
	case was == down:
		w.failures, w.turn = 0, now
		w.restart(now)
		w.cap = min(1+w.lagging, p.perWebhook) // what hangs still does not hold up the rest
	default:
		w.failures = 0
		w.grow(len(w.flights) >= w.cap, p.perWebhook, now)
		if usual {
			p.successes++
			p.usual += (took - p.usual) / time.Duration(min(p.successes, usualOf))
		}
	}
	p.become(w, w.assess())
}

// become changes a webhook's condition.
func (p *pacer) become(w *track, c condition) {
	if c == w.condition {
		return
	}
	p.lines[w.condition].take(w)
	p.count(w, -w.held(), -1)
	unproven := w.unproven
	p.countUnproven(w, -unproven)
	w.condition = c
	p.countUnproven(w, unproven)
	p.count(w, w.held(), 1)
	p.arrange(w)
}

// count counts so many slots more as held by the webhook, and so many webhooks of
// its condition.
func (p *pacer) count(w *track, slots, webhooks int) {
	for _, pool := range [2]*pool{&p.pool, &w.account.pool} {
		if w.condition != fit {
			pool.troubled += slots
		}
		if w.condition == slow {
			pool.slowly += webhooks
		}
	}
	if w.condition >= ailing {
		p.failing += slots
	}
	p.unpark(w.account)
}

// arrange makes claims find the webhook as it is now.
func (p *pacer) arrange(w *track) {
	capped := w.cap
	switch line := &p.lines[w.condition]; {
	case w.suspended > 0:
		capped = 0
		line.take(w)
	case w.condition != fit:
		capped = 0 // it waits for its turn
		if len(w.flights) < w.limit() {
			line.put(w)
		} else {
			line.take(w)
		}
	case w.cap == p.firstCap:
		capped = unlisted
	}
	switch {
	case capped == w.capped:
	case capped == unlisted:
		delete(p.caps, w.id)
	default:
		p.caps[w.id] = capped
	}
	p.raise(w, capped)
}

// maxRaised bounds what is told apart, should the store not answer for long.
const maxRaised = 4096

// raise notes what caps says of a webhook now.
func (p *pacer) raise(w *track, capped int) {
	if w.capped == 0 && capped != 0 && p.raised != nil {
		if p.raised = append(p.raised, w.id); len(p.raised) > maxRaised {
			p.raised = nil
		}
	}
	w.capped = capped
}

// plan returns when the run loop is needed next, at the given time at the latest:
// to look, or if it may claim, to give turns.
func (p *pacer) plan(now, at time.Time, claims bool) time.Time {
	if p.planned = p.nextLook(); !p.planned.IsZero() {
		p.planned = latest(p.planned, now)
		at = earliest(at, p.planned)
	}
	if claims && !p.full() && p.spare() > 0 {
		if w := p.next(p.hopeless()); w != nil {
			at = earliest(at, w.turn)
		}
	}
	return at
}

// idle returns caps that keep a claim to webhooks with nothing in flight or to be
// settled.
func (p *pacer) idle() map[string]int {
	caps := make(map[string]int)
	for id, w := range p.tracks {
		if !w.isIdle() {
			caps[id] = 0
		}
	}
	return caps
}

// watch returns what is in flight to the webhook, to be waited for.
func (p *pacer) watch(webhook string) []*flight {
	w := p.tracks[webhook]
	if w == nil {
		return nil
	}
	for _, f := range w.flights {
		f.watched = true
	}
	return slices.Clone(w.flights)
}

// cancelAll cuts short all that is in flight.
func (p *pacer) cancelAll() {
	for _, w := range p.tracks {
		for _, f := range w.flights {
			f.stop.now()
		}
	}
}

// pace tells how a webhook does.
func (p *pacer) pace(webhook string) LimiterState {
	w := p.tracks[webhook]
	if w == nil {
		return LimiterState{Cap: p.firstCap}
	}
	return LimiterState{InFlight: len(w.flights), Cap: w.limit(), Failures: w.failures, Slow: w.slow, Down: w.condition == down && !w.hopeful}
}
