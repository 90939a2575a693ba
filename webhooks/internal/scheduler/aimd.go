package scheduler

import "time"

const (
	firstCap = 2           // attempts in flight to an unknown webhook
	rampStep = time.Second // between two doublings after an outage
)

// limit returns how many attempts may be in flight.
func (w *webhook) limit() int {
	if w.health == open {
		return 1
	}
	return w.cap
}

// grow raises the cap, up to most. It grows by one each time as many attempts as it
// allows have succeeded while it was used up; after an outage it doubles instead, once a
// rampStep at most.
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

// restart begins with one attempt at a time, and ramps up.
func (w *webhook) restart(now time.Time) { w.cap, w.filled, w.ramping, w.changed = 1, 0, true, now }
