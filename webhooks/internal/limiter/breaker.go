package limiter

import (
	"strconv"
	"time"
)

const (
	openAfter   = 5           // failures in a row
	minPause    = time.Second // between half-open probes: the pauses double
	maxPause    = time.Minute
	pauseJitter = 0.2

	// requestPause is how much time passes at least between two requested attempts to one
	// webhook.
	requestPause = time.Second
)

// A health is how a webhook's receiver does. A webhook that is open has an open circuit
// breaker; that of the others is closed.
type health uint8

const (
	healthy     health = iota
	slow               // its attempts take long
	slowFailing        // and the last one failed
	open               // its attempts all fail
)

// failing reports whether the webhook shares the slots of those that fail.
func (h health) failing() bool { return h >= slowFailing }

// assess returns what the webhook's health ought to be.
func (w *webhook) assess() health {
	switch {
	case w.failures >= openAfter:
		return open
	case !w.slow:
		return healthy
	case w.failures > 0:
		return slowFailing
	}
	return slow
}

// setHealth changes a webhook's health.
func (l *Limiter) setHealth(w *webhook, h health) {
	if h == w.health {
		return
	}
	l.queues[w.health].remove(w)
	l.count(w, -w.held(), -1)
	unproven := w.unproven
	l.countUnproven(w, -unproven)
	w.health = h
	l.countUnproven(w, unproven)
	l.count(w, w.held(), 1)
	l.refresh(w)
}

// fail notes an attempt that failed. If the breaker is open now, or the attempt was a
// probe, it returns how long to wait for the next probe.
func (l *Limiter) fail(w *webhook, s *Slot, now time.Time) (rest time.Duration) {
	w.failures++
	if !w.trusted && !s.requested && w.failures == openAfter { // or else the pauses go on
		w.pause = 0
	}
	w.trusted = false
	w.shrink(now)
	switch {
	case w.failures == openAfter:
		w.pause = max(w.pause, minPause)
		return l.rest(w, now)
	case s.probe && !s.requested && w.health == open: // requested attempts do not lengthen the pause
		w.pause = min(2*w.pause, maxPause)
		return l.rest(w, now)
	}
	return 0
}

// closeBreaker closes the breaker after a success. What still hangs does not hold up the rest.
func (w *webhook) closeBreaker(now time.Time, most int) {
	w.failures, w.turn = 0, now
	w.restart(now)
	w.cap = min(1+w.late, most)
}

// rest puts the webhook's next turn off by about its pause, and returns by how long.
func (l *Limiter) rest(w *webhook, now time.Time) time.Duration {
	rest := l.jitter.Vary(w.pause, pauseJitter, w.id, strconv.FormatInt(now.UnixNano(), 10))
	w.turn = now.Add(rest)
	return rest
}

// Trust notes that there is reason to believe that a webhook's receiver is up. If its
// breaker is open the pause ends, and one attempt that fails begins it again. If there was
// an attempt just now the next waits, also for a requested one.
func (l *Limiter) Trust(webhook string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.webhooks[webhook]
	if w == nil {
		return
	}
	w.trusted = true
	switch {
	case w.health != open:
	case now.Sub(w.active) < requestPause:
		w.turn = earliest(w.turn, w.active.Add(2*requestPause))
		l.refresh(w)
	default:
		l.halfOpen(w, now)
	}
}

// halfOpen lets a webhook whose breaker is open begin as one that has recovered, until
// the next failure.
func (l *Limiter) halfOpen(w *webhook, now time.Time) {
	w.failures = openAfter - 1
	w.slow = w.slow && w.late > 0
	w.restart(now)
	l.setHealth(w, w.assess())
}
