package scheduler

import (
	"strconv"
	"time"
)

const (
	openAfter   = 5           // consecutive failures
	minPause    = time.Second // first pause between half-open probes; the pauses double
	maxPause    = time.Minute
	pauseJitter = 0.2
)

// A health classifies a webhook by its recent attempts. The circuit breaker is open if and only
// if the health is open.
type health uint8

const (
	healthy     health = iota
	slow               // attempts take long
	slowFailing        // slow, and the last attempt failed
	open               // all attempts fail
	healths
)

// failing reports whether the webhook counts as failing in the bulkhead.
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

// setHealth sets a webhook's health. The caller must call arrange afterwards.
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

// fail records a failed attempt. If the breaker opens, or the attempt was a probe, fail schedules
// the next probe after a pause.
func (s *Scheduler) fail(w *webhook, slot *Slot) {
	w.failures++
	if !w.trusted && !slot.requested && w.failures == openAfter { // after a trusted or requested attempt, the pauses continue as before
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

// closeBreaker closes the breaker after a success. The new cap allows one attempt in addition to
// the attempts that still hang.
func (w *webhook) closeBreaker(now time.Time, most int) {
	w.failures, w.turn = 0, now
	w.restart(now)
	w.cap = min(1+w.late, most)
}

// Trust records evidence that a webhook's receiver is up. It closes an open breaker, which opens
// again after a single failure. If an attempt began or ended within the last requestPause, the
// breaker stays open: Trust brings the next probe forward, but leaves time for a requested attempt
// before it.
func (s *Scheduler) Trust(webhookID string) {
	s.lock()
	defer s.mu.Unlock()
	w := s.webhooks[webhookID]
	if w == nil {
		return
	}
	w.trusted = true
	switch {
	case w.health != open:
	case s.now.Sub(w.active) < requestPause:
		w.turn = earliest(w.turn, w.active.Add(2*requestPause))
	default: // treat it as recovered until the next failure
		w.failures = openAfter - 1
		w.slow = w.slow && w.late > 0
		w.restart(s.now)
		s.setHealth(w, w.assess())
	}
	s.arrange(w)
}
