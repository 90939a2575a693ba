package limiter

import "time"

const (
	lateFactor       = 5                      // times what is usual: an attempt that takes longer makes its webhook slow,
	minLatency       = time.Second            // but not if it takes less than this,
	minScarceLatency = 100 * time.Millisecond // or where slots are scarce, than this
	inspectPause     = 20 * time.Millisecond  // between two inspections of what is in flight
	slowFor          = 10 * time.Second       // after an attempt that was late, at least

	// As long as little is known of what is usual, an attempt to an unproven webhook is
	// late after this where slots are scarce. To a proven one it is not: after a start,
	// receivers that take some 100 ms would get much of the backlog twice.
	firstLatency = 150 * time.Millisecond
	sampleSize   = 64 // successes, of late
)

// latencyLimit returns how long an attempt may take before it is late, which depends on
// whether slots are scarce. While attempts take long for all it is the network, or this
// process, and no one is to blame.
func (l *Limiter) latencyLimit(scarce bool) time.Duration {
	least := minLatency
	if scarce && l.successes >= sampleSize {
		least = minScarceLatency
	}
	return min(max(lateFactor*l.usual, least), l.maxLatency)
}

// scarceLimit returns the latencyLimit where slots are scarce, by whether the webhook was
// unproven.
func (l *Limiter) scarceLimit(unproven bool) time.Duration {
	if unproven && l.successes < sampleSize {
		return firstLatency
	}
	return l.latencyLimit(true)
}

// shortestLimit returns how long no attempt is late.
func (l *Limiter) shortestLimit() time.Duration {
	if l.scarce() {
		return l.scarceLimit(true)
	}
	return l.latencyLimit(false)
}

// scarce reports whether slots are, of all, of an account or of those that are kept for
// some.
func (l *Limiter) scarce() bool {
	return l.full() || l.starved || l.crowdedAccounts > 0 || l.requestRoom() == 0
}

// exceedsShare reports whether webhooks that are not healthy hold slots beyond their
// share, of all or of the account's, while others wait for some.
func (l *Limiter) exceedsShare(a *account) bool {
	return (l.full() || l.starved) && l.spare() < 0 || a.full() && a.spare() < 0
}

// isLate reports whether an attempt of that age takes too long.
func (l *Limiter) isLate(s *Slot, age time.Duration, now time.Time) bool {
	limit := l.scarceLimit(s.unproven)
	inTheWay := l.blocked(s.mark, now, limit) || s.webhook.account.blocked(s.accountMark, now, limit) ||
		s.unproven && l.starved && l.unproven.stuck(s.unprovenMark, now, limit) || s.requested && l.requestRoom() == 0
	return inTheWay && age >= limit || age >= l.latencyLimit(false)
}

// observeLatency judges by how long an attempt took whether its webhook is slow. It
// reports whether the latency is to count as usual if the attempt succeeded.
func (l *Limiter) observeLatency(w *webhook, took time.Duration, outcome Outcome, now time.Time) (usual bool) {
	usual = w.health == healthy
	switch {
	case took > l.latencyLimit(false):
		w.slow, w.lastLate = true, now
	case outcome == Success && w.guessed && w.late == 0:
		w.slow, usual = false, true
	case took <= l.latencyLimit(l.full() || w.account.full()) && w.late == 0 && now.Sub(w.lastLate) >= slowFor:
		w.slow = false
	}
	w.guessed = false
	return usual
}

// acquit takes back, once, that a webhook is slow if nothing else is known of it: it may
// have been this process that had no time.
func (l *Limiter) acquit(w *webhook) {
	if w.guessed && !w.doubted && w.late == 0 {
		w.guessed, w.doubted, w.slow = false, true, false
		l.setHealth(w, w.assess())
	}
}

// Tick does what is to be done from time to time, see NextWake. It finds the attempts that
// take too long, and cuts short those that hold more slots than they may where slots are
// scarce.
func (l *Limiter) Tick(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetIdle(now)
	if at := l.nextInspection(); at.IsZero() || at.After(now) {
		return
	}
	if !l.planned.IsZero() && now.Sub(l.planned) > minScarceLatency/2 {
		l.resumed = now // this process had no time, for its receivers neither
	}
	l.inspected, l.overShare, l.searching = now, false, false
	least := l.shortestLimit()
	for at := l.young.Front(); at != nil; {
		s := at.Value.(*Slot)
		at = at.Next()
		age := now.Sub(latest(s.begun, l.resumed))
		switch {
		case s.attempt.Ended():
			l.unlist(s)
		case age < least:
			at = nil
		case l.isLate(s, age, now):
			l.setLate(s, now)
		}
	}
	l.relieve()
}

// setLate notes that an attempt takes too long: its webhook is slow.
func (l *Limiter) setLate(s *Slot, now time.Time) {
	w := s.webhook
	l.unlist(s)
	s.late, l.searching = true, true
	w.late++
	w.guessed = !w.slow && w.finished == 0
	w.slow, w.lastLate = true, now
	if w.health == healthy {
		w.turn = now
	}
	l.setHealth(w, w.assess())
	if !s.turn {
		s.element = l.late.PushBack(s)
	}
}

// relieve cuts short, oldest first, what webhooks that are not healthy hold beyond their
// share of the slots, or of their account's, if all are taken.
func (l *Limiter) relieve() {
	for at := l.late.Front(); at != nil; {
		s := at.Value.(*Slot)
		at = at.Next()
		if l.exceedsShare(s.webhook.account) || s.requested && l.requestsCrowded(s.webhook.account) {
			l.cut(s)
		}
	}
}

// nextInspection returns when what is in flight is to be inspected; zero: when something
// has begun.
func (l *Limiter) nextInspection() time.Time {
	front := l.young.Front()
	pause := l.inspected.Add(inspectPause)
	switch {
	case l.overShare && l.late.Len() > 0:
		return pause
	case front == nil:
		return time.Time{}
	}
	return latest(pause, latest(front.Value.(*Slot).begun, l.resumed).Add(l.shortestLimit()))
}

// unlist takes the slot out of young or late.
func (l *Limiter) unlist(s *Slot) {
	if s.element == nil {
		return
	}
	l.young.Remove(s.element) // does nothing if it is not
	l.late.Remove(s.element)
	s.element = nil
}
