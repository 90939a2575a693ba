package scheduler

import "time"

// A Standing classifies a webhook by its stored health. Each standing has separate run queues,
// which take turns, so that webhooks of one standing never wait behind webhooks of another.
// Webhooks that are not Proven are called unproven.
type Standing uint8

// The standings.
const (
	Untried Standing = iota // no attempt has succeeded yet
	Failing                 // every recent attempt has failed
	Proven
	standings
)

// A Webhook is a version of a webhook's record.
type Webhook struct {
	ID, Account string
	Version     uint64
	On          bool      // attempts may be made: the webhook is active and not on hold
	PausedUntil time.Time // by Config.Wall; zero if not paused
	Standing    Standing
	Record      any // the caller's record of the webhook, not used by the scheduler
}

// A webhook holds the scheduler's state of a webhook that has deliveries pending or in flight, or
// recently had some.
type webhook struct {
	id      string
	account *account
	group   int32 // the store's group
	version uint64
	record  any
	hinted  bool // record is from a report; the webhook may have been deleted and imported again since
	off     bool // according to record
	paused  bool // the group is paused
	dropped bool // forgotten

	lanes    [kinds]lane
	slots    []*Slot // attempts from Next to End, in no order
	standing Standing
	failing  int64  // item time at which standing became Failing
	since    int64  // item time at which its wait began: an attempt ended, or the webhook was turned on
	down     bool   // the circuit breaker opened after the last success
	nudged   bool   // a delivery in flight was nudged; its next attempt also serves the next Probe
	unread   int    // consecutive loads that found a delivery unread
	unreadIn uint64 // Scheduler.loads at the latest of these loads
	loadAt   int64  // earliest item time of the next load
	until    int64  // item time at which its pause ends, or has ended

	pausedUntil time.Time // according to record

	health   health
	inFlight int // slots in use
	cut      int // slots in use by canceled attempts
	unproven int // other slots in use, taken while the webhook was unproven
	suspends int // number of slots with suspends set

	cap      int
	filled   int       // number of successes while the cap was fully used, since the cap last changed
	ramping  bool      // the cap doubles, since the breaker was open before
	changed  time.Time // last change of the cap, while ramping
	failures int       // consecutive
	tried    bool      // an attempt has begun

	slow     bool      // attempts take long
	late     int       // slots of late attempts
	lastLate time.Time // last late attempt
	second   bool      // an attempt was canceled after firstLatency; secondLatency applies
	trusted  bool      // Trust was called since the last failure

	turn   time.Time     // unhealthy: earliest time of the next attempt
	served uint64        // orders webhooks with the same turn by their last attempt
	pause  time.Duration // open: current pause between probes
	place  int           // index in its turnQueue, or parked or nowhere
	active time.Time     // last begin or end of an attempt

	idle  bool // in Scheduler.idle
	links links[webhook]
}

func (w *webhook) in() *links[webhook] { return &w.links }

const trackedFor = 2 * time.Minute // idle webhooks are remembered this long

// An account is an account with known webhooks.
type account struct {
	id string
	pool
	requested int                     // slots of requested attempts, except canceled ones
	probed    uint64                  // Scheduler.served at the last requested attempt
	lines     [kinds][standings]*line // if nil, no lane is in it

	// parked holds webhooks whose turn came while the account held its share of the slots. Entries
	// whose webhook is no longer parked are skipped.
	parked []*webhook
}

// stopped reports whether no attempt may begin until the webhook's record or group changes.
func (w *webhook) stopped() bool { return w.off || w.paused || w.dropped }

// mayBegin reports whether the webhook's limit allows another attempt.
func (w *webhook) mayBegin() bool { return w.suspends == 0 && w.inFlight < w.limit() }

// held returns the number of slots in use, except by canceled attempts.
func (w *webhook) held() int { return w.inFlight - w.cut }

// isEmpty reports whether nothing is pending for the webhook.
func (w *webhook) isEmpty() bool {
	return len(w.slots)+len(w.lanes[live].waiting)+len(w.lanes[recovered].waiting) == 0
}

// webhookOf returns the webhook that r describes. It adds the webhook if it is not known yet.
func (s *Scheduler) webhookOf(r *Webhook, group int32) *webhook {
	if w := s.webhooks[r.ID]; w != nil {
		return w
	}
	a := s.accounts[r.Account]
	if a == nil {
		a = &account{id: r.Account, pool: pool{slots: s.perAccount}}
		s.accounts[a.id] = a
	}
	s.pool.webhooks++
	a.webhooks++
	w := &webhook{
		id: r.ID, account: a, group: group, version: r.Version, record: r.Record, hinted: true, paused: s.paused[group],
		standing: r.Standing, failing: s.t, since: s.t, cap: s.firstCap, place: nowhere,
	}
	for kind := range w.lanes {
		w.lanes[kind] = lane{webhook: w, kind: uint8(kind), place: nowhere}
	}
	s.webhooks[w.id] = w
	return w
}

// learn sets a webhook's record, unless the scheduler already has a later version.
func (s *Scheduler) learn(w *webhook, r *Webhook) {
	if r.Version < w.version {
		return
	}
	newer := r.Version > w.version
	w.hinted, w.version, w.record = false, r.Version, r.Record
	if newer {
		s.setStanding(w, r.Standing)
	}
	if w.off == r.On {
		w.off, w.since = !r.On, s.t
		s.arrange(w)
	}
	if !r.PausedUntil.IsZero() || !w.pausedUntil.IsZero() {
		s.snooze(w, r.PausedUntil)
	}
}

// longFailing is how long a webhook must have been failing before its next success counts as a
// recovery.
const longFailing = time.Minute

// setStanding sets the standing of a webhook. If a webhook becomes Proven after longFailing or an
// open breaker, its receiver has recovered, and deliveries that wait for a retry become due. If
// such a delivery fails again, the next recovery does not bring it forward. So deliveries that fail
// for other reasons do not use up their attempts.
func (s *Scheduler) setStanding(w *webhook, standing Standing) {
	if w.standing == standing {
		return
	}
	recovers := standing == Proven && (w.down || w.standing == Failing && s.t-w.failing >= longFailing.Milliseconds())
	if standing == Failing {
		w.failing = s.t
	}
	for kind := range w.lanes { // leave the lines of the old standing
		if l := &w.lanes[kind]; l.place == queued {
			s.moveLane(l, ready)
		}
	}
	w.standing, w.since = standing, s.t
	if standing == Proven {
		w.down = false
	}
	if recovers {
		s.bringForward(w)
	} else {
		s.arrange(w)
	}
}

// drop forgets a webhook and its pending deliveries, and cancels its attempts.
func (s *Scheduler) drop(w *webhook) {
	w.dropped = true
	for kind := range w.lanes {
		l := &w.lanes[kind]
		s.moveLane(l, nowhere)
		s.waiting -= len(l.waiting)
		l.waiting = nil
	}
	s.arrange(w)
	for _, slot := range w.slots {
		slot.attempt.Cancel()
	}
	delete(s.webhooks, w.id)
	if s.dropped == nil {
		s.dropped = make(map[*webhook]bool)
	}
	s.dropped[w] = true
	s.noteIdle(w)
}

// noteIdle forgets an empty webhook after trackedFor, or at once if nothing is known about its
// receiver.
func (s *Scheduler) noteIdle(w *webhook) {
	switch {
	case !w.isEmpty():
	case w.dropped || !w.tried:
		s.forget(w)
	case !w.idle:
		w.idle = true
		s.idle.push(w)
	}
}

// revive marks a webhook as not idle.
func (s *Scheduler) revive(w *webhook) {
	if w.idle {
		w.idle = false
		s.idle.remove(w)
	}
}

// forget forgets an empty webhook.
func (s *Scheduler) forget(w *webhook) {
	s.revive(w)
	s.queues[w.health].remove(w)
	s.count(w, 0, -1)
	if s.webhooks[w.id] == w {
		delete(s.webhooks, w.id)
	}
	delete(s.dropped, w)
	w.dropped = true
	s.pool.webhooks--
	if w.account.webhooks--; w.account.webhooks == 0 {
		delete(s.accounts, w.account.id)
	}
	s.unpark(w.account) // the shares of other webhooks may have grown
}

// forgetIdle forgets webhooks that have been idle for trackedFor.
func (s *Scheduler) forgetIdle() {
	for w := s.idle.first; w != nil && s.now.Sub(w.active) >= trackedFor; w = s.idle.first {
		s.forget(w)
	}
}
