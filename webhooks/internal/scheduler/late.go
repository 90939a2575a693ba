package scheduler

import "time"

const (
	lateFactor       = 5                      // an attempt is late after this multiple of the usual latency
	minLatency       = time.Second            // minimum age of a late attempt
	minScarceLatency = 100 * time.Millisecond // minLatency while slots are scarce
	inspectPause     = 20 * time.Millisecond  // minimum time between two inspections
	slowFor          = 10 * time.Second       // a webhook stays slow at least this long after a late attempt

	// maxRequestLatency is the age at which a requested attempt is late if other requested attempts
	// wait for its slot. It lets them begin within a second.
	maxRequestLatency = 900 * time.Millisecond

	// firstLatency is the limit for the first attempt to an unproven webhook while slots are scarce
	// and the usual latency is unknown. It does not apply to proven webhooks: after a restart, it
	// would cut off attempts to receivers that take a few hundred milliseconds, and much of their
	// backlog would be sent twice.
	firstLatency = 150 * time.Millisecond

	// secondLatency is the limit for the next attempt after one that exceeded firstLatency. It is
	// longer because this process may have been slow when it began many attempts at once.
	secondLatency = 4 * firstLatency
	many          = 64 // mayBeOurs applies only if unproven webhooks have at least this many slots

	sampleSize = 64 // number of recent successes in the average that is the usual latency
)

// latencyLimit returns how long an attempt may take before it is late. The limit grows with the
// usual latency: if all attempts take long, the cause is the network or this process, not a
// receiver.
func (s *Scheduler) latencyLimit(scarce bool) time.Duration {
	least := minLatency
	if scarce && s.successes >= sampleSize {
		least = minScarceLatency
	}
	return min(max(lateFactor*s.usual, least), s.maxLatency)
}

// scarceLimit returns the latency limit while slots are scarce.
func (s *Scheduler) scarceLimit(unproven, second bool) time.Duration {
	switch {
	case !unproven || s.successes >= sampleSize:
		return s.latencyLimit(true)
	case second:
		return secondLatency
	}
	return firstLatency
}

// shortestLimit returns the age below which no attempt is late.
func (s *Scheduler) shortestLimit() time.Duration {
	if s.scarce() {
		return s.scarceLimit(true, false)
	}
	return s.latencyLimit(false)
}

// scarce reports whether slots of any kind are scarce: all slots, an account's slots, or the slots
// reserved for unproven webhooks or requested attempts.
func (s *Scheduler) scarce() bool {
	return s.full() || s.starved || s.crowdedAccounts > 0 || s.requestRoom() == 0
}

// exceedsShare reports whether unhealthy webhooks hold more than their share of all slots or of
// the account's slots, while others wait for slots.
func (s *Scheduler) exceedsShare(a *account) bool {
	return (s.full() || s.starved) && s.spare() < 0 || a.full() && a.spare() < 0
}

// isLate reports whether an attempt of the given age is late.
func (s *Scheduler) isLate(slot *Slot, age time.Duration) bool {
	limit, a := s.scarceLimit(slot.unproven, slot.second), slot.webhook.account
	inTheWay := s.blocked(slot.mark, s.now, limit) || a.blocked(slot.accountMark, s.now, limit) ||
		slot.unproven && s.starved && s.unproven.stuck(slot.unprovenMark, s.now, limit)
	if slot.requested && s.requestRoom() == 0 {
		inTheWay, limit = true, min(limit, maxRequestLatency)
	}
	return inTheWay && age >= limit || age >= s.latencyLimit(false)
}

// mayBeOurs reports whether an attempt exceeds firstLatency but not secondLatency, while unproven
// webhooks use up a large number of slots. Then this process may be slow, not the receiver.
func (s *Scheduler) mayBeOurs(slot *Slot, age time.Duration) bool {
	return s.starved && s.unproven.slots >= many && slot.unproven && !slot.second && !slot.requested &&
		slot.webhook.health == healthy && s.successes < sampleSize && age < secondLatency
}

// observeLatency decides from the latency of an attempt whether its webhook is slow. It reports
// whether the latency of a successful attempt counts toward the usual latency.
func (s *Scheduler) observeLatency(w *webhook, took time.Duration) (usual bool) {
	usual = w.health == healthy
	switch {
	case took > s.latencyLimit(false):
		w.slow, w.lastLate = true, s.now
	case took <= s.latencyLimit(s.full() || w.account.full()) && w.late == 0 && s.now.Sub(w.lastLate) >= slowFor:
		w.slow = false
	}
	return usual
}

// inspect finds late attempts, if the next inspection is due.
func (s *Scheduler) inspect() {
	if at := s.nextInspection(); at.IsZero() || at.After(s.now) {
		return
	}
	if !s.planned.IsZero() && s.now.Sub(s.planned) > minScarceLatency/2 {
		s.resumed = s.now // this process was suspended, so it could not read responses
	}
	s.inspected, s.overShare, s.searching = s.now, false, false
	searched := s.searches
	s.searches = nil
	for _, a := range searched {
		a.searching = false
	}
	least := s.shortestLimit()
	for slot := s.young.first; slot != nil; {
		next, age := slot.links.after, s.now.Sub(latest(slot.begun, s.resumed))
		switch {
		case slot.attempt.Ended():
			slot.unlist()
		case age < least:
			next = nil
		case !s.isLate(slot, age):
		case s.mayBeOurs(slot, age):
			if s.unproven.inFlight > s.slots/4 {
				slot.webhook.second = true
				s.cutShort(slot)
			}
		default:
			s.setLate(slot)
		}
		slot = next
	}
	s.relieve()
	for _, a := range searched {
		s.unpark(a) // the account's share may be larger now
	}
}

// setLate marks an attempt as late and its webhook as slow.
func (s *Scheduler) setLate(slot *Slot) {
	w := slot.webhook
	slot.unlist()
	slot.late = true
	s.searching = true
	if !w.account.searching {
		w.account.searching = true
		s.searches = append(s.searches, w.account)
	}
	w.late++
	w.slow, w.lastLate = true, s.now
	if w.health == healthy {
		w.turn = s.now
	}
	s.setHealth(w, w.assess())
	s.arrange(w)
	if !slot.turn {
		slot.list(&s.late)
	}
}

// relieve cancels late attempts, oldest first, while unhealthy webhooks or requested attempts
// hold more than their share of scarce slots.
func (s *Scheduler) relieve() {
	for slot := s.late.first; slot != nil; {
		next := slot.links.after
		if a := slot.webhook.account; s.exceedsShare(a) || slot.requested && s.requestsCrowded(a) {
			s.cutShort(slot)
		}
		slot = next
	}
}

// nextInspection returns the time of the next inspection, or zero if no attempt needs one.
func (s *Scheduler) nextInspection() time.Time {
	oldest := s.young.first
	pause := s.inspected.Add(inspectPause)
	switch {
	case s.overShare && s.late.first != nil:
		return pause
	case oldest == nil:
		return time.Time{}
	}
	return latest(pause, latest(oldest.begun, s.resumed).Add(s.shortestLimit()))
}
