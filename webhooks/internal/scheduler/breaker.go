package scheduler

import (
	"strconv"
	"time"
)

const (
	openAfter   = 5           // failures in a row
	minPause    = time.Second // between half-open probes: the pauses double
	maxPause    = time.Minute
	pauseJitter = 0.2
)

// A health classifies a webhook by its recent attempts. Its circuit breaker is open if the health
// is open, and closed otherwise.
type health uint8

const (
	healthy     health = iota
	slow               // its attempts take long
	slowFailing        // and the last one failed
	open               // its attempts all fail
	healths
)

// failing reports whether the webhook shares the slots of those that fail.
func (h health) failing() bool { return h >= slowFailing }

// assess computes the webhook's health.
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

// setHealth changes a webhook's health. The caller arranges the webhook.
func (s *Scheduler) setHealth(w *webhook, h health) {
	if h == w.health {
		return
	}
	s.queues[w.health].remove(w)
	s.count(w, -w.held(), -1)
	unproven := w.unproven
	s.countUnproven(w, -unproven)
	w.health = h
	s.countUnproven(w, unproven)
	s.count(w, w.held(), 1)
}

// fail notes an attempt that failed. If the breaker is open now, or the attempt was a
// probe, the next probe waits for a pause.
func (s *Scheduler) fail(w *webhook, slot *Slot) {
	w.failures++
	if !w.trusted && !slot.requested && w.failures == openAfter { // or else the pauses go on
		w.pause = 0
	}
	w.trusted = false
	w.shrink(s.now)
	switch {
	case w.failures == openAfter:
		w.pause = max(w.pause, minPause)
	case slot.probe && !slot.requested && w.health == open: // requested attempts do not lengthen the pause
		w.pause = min(2*w.pause, maxPause)
	default:
		return
	}
	w.down = true
	w.turn = s.now.Add(s.jitter.Vary(w.pause, pauseJitter, w.id, strconv.FormatInt(s.now.UnixNano(), 10)))
}

// closeBreaker closes the breaker after a success. What still hangs does not hold up the rest.
func (w *webhook) closeBreaker(now time.Time, most int) {
	w.failures, w.turn = 0, now
	w.restart(now)
	w.cap = min(1+w.late, most)
}

// Trust notes that there is reason to believe that a webhook's receiver is up. If its
// breaker is open the pause ends, and one attempt that fails begins it again. If there was
// an attempt just now the next waits, also for a requested one.
func (s *Scheduler) Trust(webhookID string) {
	s.lock()
	defer s.mu.Unlock()
	w := s.webhooks.all[webhookID]
	if w == nil {
		return
	}
	w.trusted = true
	switch {
	case w.health != open:
	case s.now.Sub(w.active) < requestPause:
		w.turn = earliest(w.turn, w.active.Add(2*requestPause))
	default: // it begins as one that has recovered, until the next failure
		w.failures = openAfter - 1
		w.slow = w.slow && w.late > 0
		w.restart(s.now)
		s.setHealth(w, w.assess())
	}
	s.arrange(w)
}
