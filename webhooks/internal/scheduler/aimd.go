package scheduler

import "time"

const (
	firstCap = 2           // limit for an unknown webhook
	rampStep = time.Second // minimum time between two doublings after an outage
)

// limit returns the maximum number of attempts that the webhook may have in flight.
func (w *webhook) limit() int {
	if w.health == open {
		return 1
	}
	return w.cap
}

// grow raises the cap by one after cap successes during which the cap was fully used. While the cap
// ramps up after an outage, grow doubles it instead, at most once per rampStep. grow does not raise
// the cap above most.
func (w *webhook) grow(full bool, most int, now time.Time) {
	switch {
	case !full || w.cap == most:
		w.ramping = w.ramping && w.cap < most
	case w.ramping:
		if now.Sub(w.changed) >= rampStep {
			w.cap, w.changed = min(2*w.cap, most), now
		}
	default:
		if w.filled++; w.filled >= w.cap {
			w.cap, w.filled = w.cap+1, 0
		}
	}
}

// shrink halves the cap.
func (w *webhook) shrink(now time.Time) { w.cap, w.filled, w.changed = max(1, w.cap/2), 0, now }

// restart sets the cap to one and lets it ramp up.
func (w *webhook) restart(now time.Time) { w.cap, w.filled, w.ramping, w.changed = 1, 0, true, now }
