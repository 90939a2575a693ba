package scheduler

import "time"

const (
	lateFactor       = 5                      // times the usual latency: then an attempt is late,
	minLatency       = time.Second            // at the earliest,
	minScarceLatency = 100 * time.Millisecond // and at the earliest where slots are scarce
	inspectPause     = 20 * time.Millisecond  // between two inspections of the attempts in flight
	slowFor          = 10 * time.Second       // a webhook stays slow after a late attempt, at least

	// maxRequestLatency bounds a requested attempt while others wait for its slot, so that they
	// begin within a second.
	maxRequestLatency = 900 * time.Millisecond

	// firstLatency applies until the usual latency is known: an attempt to an unproven webhook is
	// late after this where slots are scarce. It does not apply to proven webhooks: after a start,
	// receivers that take some 100 ms would get much of the backlog twice.
	firstLatency = 150 * time.Millisecond
	sampleSize   = 64 // recent successes that the usual latency is averaged over
)

// latencyLimit returns how long an attempt may take before it is late, which depends on
// whether slots are scarce. While attempts take long for all it is the network, or this
// process, and no one is to blame.
func (s *Scheduler) latencyLimit(scarce bool) time.Duration {
	least := minLatency
	if scarce && s.successes >= sampleSize {
		least = minScarceLatency
	}
	return min(max(lateFactor*s.usual, least), s.maxLatency)
}

// scarceLimit returns the latencyLimit where slots are scarce, by whether the webhook was
// unproven.
func (s *Scheduler) scarceLimit(unproven bool) time.Duration {
	if unproven && s.successes < sampleSize {
		return firstLatency
	}
	return s.latencyLimit(true)
}

// shortestLimit returns how long no attempt is late.
func (s *Scheduler) shortestLimit() time.Duration {
	if s.scarce() {
		return s.scarceLimit(true)
	}
	return s.latencyLimit(false)
}

// scarce reports whether slots are, of all, of an account or of those that are kept for
// some.
func (s *Scheduler) scarce() bool {
	return s.full() || s.starved || s.crowdedAccounts > 0 || s.requestRoom() == 0
}

// exceedsShare reports whether webhooks that are not healthy hold slots beyond their
// share, of all or of the account's, while others wait for some.
func (s *Scheduler) exceedsShare(a *account) bool {
	return (s.full() || s.starved) && s.spare() < 0 || a.full() && a.spare() < 0
}

// isLate reports whether an attempt of that age takes too long.
func (s *Scheduler) isLate(slot *Slot, age time.Duration) bool {
	limit, a := s.scarceLimit(slot.unproven), slot.webhook.account
	inTheWay := s.blocked(slot.mark, s.now, limit) || a.blocked(slot.accountMark, s.now, limit) ||
		slot.unproven && s.starved && s.unproven.stuck(slot.unprovenMark, s.now, limit)
	if slot.requested && s.requestRoom() == 0 {
		inTheWay, limit = true, min(limit, maxRequestLatency)
	}
	return inTheWay && age >= limit || age >= s.latencyLimit(false)
}

// observeLatency judges by how long an attempt took whether its webhook is slow. It
// reports whether the latency is to count as usual if the attempt succeeded.
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

// inspect finds the attempts that take too long, if it is time to.
func (s *Scheduler) inspect() {
	if at := s.nextInspection(); at.IsZero() || at.After(s.now) {
		return
	}
	if !s.planned.IsZero() && s.now.Sub(s.planned) > minScarceLatency/2 {
		s.resumed = s.now // this process had no time, for its receivers neither
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
		case s.isLate(slot, age):
			s.setLate(slot)
		}
		slot = next
	}
	s.relieve()
	for _, a := range searched {
		s.unpark(a) // its share may be larger now
	}
}

// setLate notes that an attempt takes too long: its webhook is slow.
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

// relieve cuts short, oldest first, what webhooks that are not healthy hold beyond their
// share of the slots, or of their account's, if all are taken.
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
