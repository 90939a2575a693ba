package scheduler

import "time"

// The lanes of a paused webhook stay among the timers: their first item is due when the pause ends.
// Pauses end at a wall-clock time, which item times do not follow, so CheckClock recomputes the ends
// after the wall clock was set.

const (
	maxSnooze = 365 * 24 * time.Hour // a longer pause is evaluated again after this time
	clockStep = 1000                 // milliseconds; smaller steps of the wall clock do not matter
)

// pauseEnd returns the item time at which a pause ends, or 0 if it has ended.
func (s *Scheduler) pauseEnd(until time.Time) int64 {
	if until.IsZero() {
		return 0
	}
	left := min(until.Sub(s.wall()), maxSnooze)
	if left <= 0 {
		return 0
	}
	return s.t + (left + time.Millisecond - 1).Milliseconds()
}

// snooze sets the end of a webhook's pause.
func (s *Scheduler) snooze(w *webhook, until time.Time) {
	w.pausedUntil = until
	end := s.pauseEnd(until)
	switch {
	case end > 0:
	case w.until > s.t:
		end = s.t // the pause ended early
	default:
		return
	}
	for kind := range w.lanes { // the due times of all lanes change, but a heap can repair only one
		if l := &w.lanes[kind]; l.place >= 0 {
			s.moveLane(l, nowhere)
		}
	}
	w.until = end
	s.arrange(w)
}

// CheckClock recomputes the ends of pauses if the wall clock was set since the last call, and
// reports whether it was. Call it every few seconds.
func (s *Scheduler) CheckClock() (wasSet bool) {
	s.lock()
	defer s.mu.Unlock()
	offset := s.wall().UnixMilli() - s.t
	if step := offset - s.offset; max(step, -step) < clockStep {
		return false
	}
	s.offset = offset
	for _, w := range s.webhooks {
		if !w.pausedUntil.IsZero() {
			s.snooze(w, w.pausedUntil)
		}
	}
	return true
}
