package scheduler

import "time"

// A Standing classifies a webhook by its stored health. Each standing has its own run queues,
// which take turns, so that webhooks of one standing never wait behind those of another. All
// webhooks that are not Proven are unproven.
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
	On          bool // attempts may be made: it is active and not on hold
	Standing    Standing
	Record      any // the caller's
}

// A webhook has deliveries pending or under way, or had until recently.
type webhook struct {
	id      string
	account *account
	group   int32 // of the store
	version uint64
	record  any
	hinted  bool // record is from a report of a delivery, which may be of a webhook that was deleted and imported again
	off     bool // as its record says
	paused  bool // its group is
	dropped bool // forgotten

	lanes    [kinds]lane
	slots    []*Slot // attempts from Next to End, in no order
	standing Standing
	failing  int64  // since when its standing is known to be Failing
	since    int64  // when it last came to wait: an attempt ended, or it was turned on
	down     bool   // its circuit breaker opened since the last success
	nudged   bool   // a delivery under way was nudged: its attempt also serves the next Probe
	unread   int    // loads in a row that found a delivery unread,
	unreadIn uint64 // the last of them
	loadAt   int64  // when the next one may be

	health   health
	inFlight int // slots that are not free yet
	cut      int // of them, those whose attempt was cut short
	unproven int // of the others, those taken while the webhook was unproven
	suspends int // attempts before whose end no other may begin

	cap      int
	filled   int       // successes while the cap was used up, since it last changed
	ramping  bool      // the breaker was open: the cap doubles
	changed  time.Time // when the cap last did, while ramping
	failures int       // in a row
	tried    bool      // an attempt has begun

	slow     bool      // attempts take long
	late     int       // slots of attempts that have taken too long already
	lastLate time.Time // when one last did
	trusted  bool      // see Trust; until the next failure

	turn   time.Time     // unless healthy: when it may next have an attempt
	served uint64        // when it last had one, among those with the same turn
	pause  time.Duration // open: between probes
	place  int           // in its turnQueue, parked or nowhere
	active time.Time     // when an attempt last began or ended

	idle  bool // in Scheduler.idle
	links links[webhook]
}

func (w *webhook) in() *links[webhook] { return &w.links }

const trackedFor = 2 * time.Minute // a webhook that is idle

// An account is one with webhooks.
type account struct {
	id string
	pool
	requested int // slots of requested attempts, except those cut short
	probed    uint64
	lines     [kinds][standings]*line // nil: no lane is in it

	// parked are webhooks whose turn came while the account held its share. Entries whose webhook
	// is no longer parked are skipped.
	parked []*webhook
}

// stopped reports whether no attempt may begin until the webhook's record or group changes.
func (w *webhook) stopped() bool { return w.off || w.paused || w.dropped }

// mayBegin reports whether the webhook's limit allows another attempt.
func (w *webhook) mayBegin() bool { return w.suspends == 0 && w.inFlight < w.limit() }

// held returns how many slots the webhook holds, except those of attempts cut short.
func (w *webhook) held() int { return w.inFlight - w.cut }

// isEmpty reports whether nothing is pending for the webhook.
func (w *webhook) isEmpty() bool {
	return len(w.slots)+len(w.lanes[live].waiting)+len(w.lanes[recovered].waiting) == 0
}

// webhookOf returns the webhook of a record, a new one if need be.
func (s *Scheduler) webhookOf(r *Webhook, group int32) *webhook {
	if w := s.webhooks.all[r.ID]; w != nil {
		return w
	}
	a := s.accounts.all[r.Account]
	if a == nil {
		a = &account{id: r.Account, pool: pool{slots: s.perAccount}}
		s.accounts.put(a.id, a)
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
	s.webhooks.put(w.id, w)
	return w
}

// learn notes a record of a webhook, if it is no older than the known one.
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
}

// longFailing is for how long a webhook fails until its next success counts as a recovery.
const longFailing = time.Minute

// setStanding sets the standing of a webhook. When a webhook becomes Proven after a long failing
// or an open breaker, its receiver has recovered: deliveries that wait for a retry become due. A
// delivery that then fails again waits for its next retry in any case, so that events that fail
// for reasons of their own do not use up their attempts.
func (s *Scheduler) setStanding(w *webhook, standing Standing) {
	if w.standing == standing {
		return
	}
	recovers := standing == Proven && (w.down || w.standing == Failing && s.t-w.failing >= longFailing.Milliseconds())
	if standing == Failing {
		w.failing = s.t
	}
	for kind := range w.lanes { // from the line of the standing
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

// drop forgets a webhook and what is pending for it, and cuts short what is under way.
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
	s.webhooks.delete(w.id)
	if s.dropped == nil {
		s.dropped = make(map[*webhook]bool)
	}
	s.dropped[w] = true
	s.noteIdle(w)
}

// noteIdle schedules an empty webhook to be forgotten: after trackedFor, or at once if nothing was
// learned about its receiver.
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

// revive notes that a webhook is no longer idle.
func (s *Scheduler) revive(w *webhook) {
	if w.idle {
		w.idle = false
		s.idle.remove(w)
	}
}

// forget forgets a webhook without anything pending or under way.
func (s *Scheduler) forget(w *webhook) {
	s.revive(w)
	s.queues[w.health].remove(w)
	s.count(w, 0, -1)
	if s.webhooks.all[w.id] == w {
		s.webhooks.delete(w.id)
	}
	delete(s.dropped, w)
	w.dropped = true
	s.pool.webhooks--
	if w.account.webhooks--; w.account.webhooks == 0 {
		s.accounts.delete(w.account.id)
	}
	s.unpark(w.account) // the others may have a larger share now
}

// forgetIdle forgets webhooks that have been idle for long.
func (s *Scheduler) forgetIdle() {
	for w := s.idle.first; w != nil && s.now.Sub(w.active) >= trackedFor; w = s.idle.first {
		s.forget(w)
	}
}
