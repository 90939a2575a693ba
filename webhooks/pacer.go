package webhooks

import (
	"container/list"
	"slices"
	"time"
)

const (
	firstCap   = 2                      // attempts in flight to a webhook of which nothing is known
	trackedFor = 2 * time.Minute        // a webhook that is idle
	lateBy     = 5                      // times what is usual: an attempt that takes longer makes its webhook slow,
	lateAfter  = time.Second            // but not if it takes less than this,
	hurryAfter = 100 * time.Millisecond // or where slots are short, than this
	slowFor    = 10 * time.Second       // at least
	downAfter  = 5                      // failures in a row
	minProbe   = time.Second            // pauses between probes: they double
	maxProbe   = time.Minute
	minRest    = 25 * time.Millisecond // pauses of slow webhooks for which nothing is due:
	restEach   = 20 * time.Microsecond // this for each webhook if that is longer
	rampStep   = time.Second
	lookPause  = 10 * time.Millisecond // between two looks at what is in flight
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
// It knows the webhooks with something in flight, and for a while those that had.
// The dispatcher's run loop alone changes it, with the dispatcher's mutex held.
type pacer struct {
	pool
	perWebhook, perAccount, firstCap int

	tracks   map[string]*track
	tracked  list.List // all of them, what was not seen to be in use for the longest time first
	accounts map[string]*accountTrack
	caps     map[string]int // of webhooks for which firstCap is not right, for [Claim.Caps]
	lines    [4]line        // by condition; no fit webhook is in one

	offers map[string]int // the caps of a claim of turns
	chosen []*track       // in that claim
	beat   time.Time      // when those have their next turn for which nothing was due

	unsettled int           // that have ended, and are leased until they are settled
	landed    []uint64      // their tokens, those that no claim has told the store of yet
	failing   int           // flights to webhooks that are ailing or down, but for those cut short
	crowded   int           // accounts that have as much in flight as they may
	young     list.List     // flights that have not taken too long yet, oldest first
	tardy     list.List     // flights that have, and may be cut short, oldest first
	usual     time.Duration // how long attempts take that succeed
	longest   time.Duration // that none is not late

	looked  time.Time // when young was last looked at
	planned time.Time // when that was to be done next
	resumed time.Time // when that last was done late: what was in flight then is not held to blame
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
		usual:      lateAfter / lateBy, // until it is known
		longest:    max(lateAfter, config.Timeout/2),
	}
}

// free returns how many slots are.
func (p *pacer) free() int { return p.slots - p.inFlight }

// room returns how many deliveries may be claimed: as many as there are slots free,
// unless too many results wait to be settled.
func (p *pacer) room() int { return min(p.free(), p.slots+maxSettle-p.inFlight-p.unsettled) }

// begin registers a flight.
func (p *pacer) begin(f *flight) {
	w := p.track(&f.settlement.Task.Webhook, f.begun)
	f.track, f.place, f.probe = w, len(w.flights), w.condition == down
	f.passed, f.passedOwn = p.passed(), w.account.passed()
	w.flights = append(w.flights, f)
	w.active = f.begun
	f.member = p.young.PushBack(f)
	p.inFlight++
	if w.account.inFlight++; w.account.inFlight == p.perAccount {
		p.crowded++
	}
	p.count(w, 1, 0)
	p.arrange(w)
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
		w.member = p.tracked.PushBack(w)
		p.tracks[w.id] = w
	}
	return w
}

// forget drops the track of a webhook with nothing in flight.
func (p *pacer) forget(w *track) {
	p.lines[w.condition].take(w)
	delete(p.caps, w.id)
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
		} else {
			p.count(w, -1, 0)
		}
		p.unsettled++
		w.unsettled++
		p.landed = append(p.landed, f.settlement.Task.Token)
		if f.settlement.Deactivate != "" {
			f.suspend()
		}
		p.arrange(w)
	}
}

// settled notes that flights that have ended are leased no more.
func (p *pacer) settled(flights []*flight) {
	for _, f := range flights {
		p.unsettled--
		f.track.unsettled--
		if f.suspends {
			f.track.suspended--
			p.arrange(f.track)
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

// dismiss takes the flight out of young or tardy.
func (p *pacer) dismiss(f *flight) {
	if f.member == nil {
		return
	}
	p.young.Remove(f.member) // does nothing if it is not
	p.tardy.Remove(f.member)
	f.member = nil
}

// learn draws conclusions from what came of a flight. What was no fault of the
// receiver's, and no merit, means nothing.
func (p *pacer) learn(f *flight, now time.Time) {
	w, took, failed := f.track, f.settlement.Attempt.Duration, f.settlement.Fails()
	switch {
	case !failed && f.settlement.Outcome != Deliver:
		return
	case took > p.patience(false):
		w.slow, w.lagged = true, now
	case took <= p.patience(p.full() || w.account.full()) && w.lagging == 0 && now.Sub(w.lagged) >= slowFor:
		w.slow = false
	}
	for _, pool := range [2]*pool{&p.pool, &w.account.pool} {
		pool.landings++
		pool.landed = now
	}
	switch was := w.condition; {
	case failed:
		w.failures++
		w.shrink(now)
		switch {
		case w.failures == downAfter:
			w.pause = minProbe
			w.rest(w.pause, now)
		case f.probe:
			w.pause = min(2*w.pause, maxProbe)
			w.rest(w.pause, now)
		}
	case was == down:
		w.failures, w.turn = 0, now
		w.cap, w.filled, w.ramping, w.raised = 1, 0, true, now
	default:
		w.failures = 0
		w.grow(len(w.flights) >= w.cap, p.perWebhook, now)
		if was == fit {
			p.usual += (took - p.usual) / 64
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
	w.condition = c
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

// unpark puts webhooks of the account back in line, as many as it has slots to
// spare.
func (p *pacer) unpark(a *accountTrack) {
	for n := a.spare(); n > 0 && len(a.parked) > 0; {
		w := a.parked[0]
		a.parked[0] = nil
		a.parked = a.parked[1:]
		if w.place == parked {
			w.place = nowhere
			p.arrange(w)
			n--
		}
	}
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
	w.capped = capped
}

// offer chooses webhooks that are not fit and may have attempts more, up to limit in
// all, and returns how many each may have in flight then, and how many attempts
// more that is. What comes of the claim must be told to answered.
func (p *pacer) offer(now time.Time, limit int) (caps map[string]int, turns int) {
	clear(p.offers)
	clear(p.chosen)
	p.chosen = p.chosen[:0]
	failing, room := p.hopeless(), min(limit, p.spare())
	give := func(w *track) {
		p.offers[w.id]++
		w.account.offered++
		turns++
	}
	for turns < room {
		w := p.next(failing)
		if w == nil || w.turn.After(now) {
			break
		}
		p.lines[w.condition].take(w)
		if w.account.spare() <= 0 {
			w.place = parked
			w.account.parked = append(w.account.parked, w)
			continue
		}
		if w.condition >= ailing {
			failing--
		}
		p.chosen = append(p.chosen, w)
		w.had = len(w.flights)
		p.offers[w.id] = w.had
		give(w)
	}
	for more := true; more; { // what room there is still, to each one more
		more = false
		for _, w := range p.chosen {
			if turns < room && p.offers[w.id] < w.limit() && w.account.spare() > 0 {
				give(w)
				more = true
			}
		}
	}
	return p.offers, turns
}

// hopeless returns how many attempts more ailing and down webhooks may have: an
// eighth of the slots, so that there is room for those that are slow, but succeed.
func (p *pacer) hopeless() int { return max(1, p.slots/8) - p.failing }

// next returns the webhook whose turn is next, or nil; failing tells how many more
// may be ailing or down.
func (p *pacer) next(failing int) *track {
	var first *track
	for c, line := range p.lines {
		if len(line) > 0 && (condition(c) < ailing || failing > 0) && (first == nil || line[0].turn.Before(first.turn)) {
			first = line[0]
		}
	}
	return first
}

// answered ends an offer whose claim has been answered, and begun what it got.
func (p *pacer) answered(now time.Time, err error) {
	if !p.beat.After(now) {
		p.beat = now.Add(max(minRest, time.Duration(len(p.tracks))*restEach))
	}
	for _, w := range p.chosen {
		got := len(w.flights) - w.had
		w.account.offered -= p.offers[w.id] - w.had
		p.unpark(w.account)
		switch {
		case err != nil:
		case got > 0:
			w.turn = now
		case w.isIdle() && now.Sub(w.active) >= trackedFor:
			p.forget(w)
			continue
		case w.condition == down: // nothing was due
			w.rest(w.pause, now)
		default:
			w.turn = p.beat // all at once: it is one claim
		}
		p.arrange(w)
	}
}

// patience is how long an attempt may take before it is late, which depends on
// whether slots are short. While attempts take long for all it is the network, or
// this process, and no one is to blame.
func (p *pacer) patience(short bool) time.Duration {
	least := lateAfter
	if short {
		least = hurryAfter
	}
	return min(max(lateBy*p.usual, least), p.longest)
}

// late reports whether a flight of that age takes too long, where slots are short
// or not.
func (p *pacer) late(f *flight, age time.Duration, now time.Time) bool {
	hurry := p.patience(true)
	return age >= p.patience(p.blocked(f.passed, now, hurry) || f.track.account.blocked(f.passedOwn, now, hurry))
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
	p.looked = now
	least := p.patience(p.full() || p.crowded > 0)
	for at := p.young.Front(); at != nil; {
		f := at.Value.(*flight)
		at = at.Next()
		age := now.Sub(f.since(p.resumed))
		switch {
		case f.hasLanded():
			p.dismiss(f)
		case age < least:
			at = nil
		case p.late(f, age, now):
			p.dismiss(f)
			f.lagging = true
			w := f.track
			w.lagging++
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
		account := f.track.account
		if p.full() && p.spare() < 0 || account.full() && account.spare() < 0 {
			p.dismiss(f)
			f.cut = true
			f.track.cut++
			p.count(f.track, -1, 0)
			f.cancel()
		}
	}
}

// nextLook returns when look has something to do next; zero: when something has
// begun.
func (p *pacer) nextLook() time.Time {
	front, short := p.young.Front(), p.full() || p.crowded > 0
	pause := p.looked.Add(lookPause)
	switch {
	case short && p.tardy.Len() > 0:
		return pause
	case front == nil:
		return time.Time{}
	}
	return latest(pause, front.Value.(*flight).since(p.resumed).Add(p.patience(short)))
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

// flights returns what is in flight to the webhook.
func (p *pacer) flights(webhook string) []*flight {
	if w := p.tracks[webhook]; w != nil {
		return slices.Clone(w.flights)
	}
	return nil
}

// pace tells how a webhook does.
func (p *pacer) pace(webhook string) Pace {
	w := p.tracks[webhook]
	if w == nil {
		return Pace{Cap: p.firstCap}
	}
	return Pace{InFlight: len(w.flights), Cap: w.limit(), Failures: w.failures, Slow: w.slow, Down: w.condition == down}
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
