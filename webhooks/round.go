package webhooks

import "time"

const (
	maxSleep = time.Hour   // of the run loop
	minTrial = time.Minute // pauses between trials: they double
	maxTrial = time.Hour
)

// A round is what the run loop knows of its claims from one to the next.
type round struct {
	backoff time.Duration // after claims that failed
	rested  time.Time     // the store is not to be asked before
	pause   time.Duration // between trials, while settling fails
	trial   time.Time     // the next one
}

// limit returns how many deliveries may be claimed now; if none, when that changes
// at the latest. While settling fails it is none, but for one now and then, a
// trial: if what came of that is settled, only some of the rest cannot be.
func (r *round) limit(now time.Time, free int, failing bool) (limit int, next time.Time) {
	switch {
	case !failing:
		r.pause = 0
	case r.pause == 0:
		r.pause, r.trial = minTrial, now.Add(minTrial)
	}
	switch {
	case free == 0:
		return 0, now.Add(maxSleep)
	case now.Before(r.rested):
		return 0, r.rested
	case !failing:
		return min(free, maxClaim), now
	case now.Before(r.trial):
		return 0, r.trial
	}
	return 1, now
}

// tried notes that a trial was made, of which so many flights came.
func (r *round) tried(now time.Time, flights int) {
	if flights > 0 {
		r.pause = min(2*r.pause, maxTrial)
	}
	r.trial = now.Add(r.pause)
}
