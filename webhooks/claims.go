package webhooks

import "time"

const (
	maxSleep = time.Hour   // of the run loop
	minTrial = time.Minute // pauses between trials: they double
	maxTrial = time.Hour
)

// claims is what the run loop knows of its claims from one to the next.
type claims struct {
	backoff time.Duration // after claims that failed
	rested  time.Time     // the store is not to be asked before
	pause   time.Duration // between trials, while recording fails
	trial   time.Time     // the next one
}

// limit returns how many deliveries may be claimed now; if none, when that changes
// at the latest. While recording fails it is none, except one now and then, a
// trial: if its result is recorded, only some of the rest cannot be.
func (c *claims) limit(now time.Time, free int, failing bool) (limit int, next time.Time) {
	switch {
	case !failing:
		c.pause = 0
	case c.pause == 0:
		c.pause, c.trial = minTrial, now.Add(minTrial)
	}
	switch {
	case free == 0:
		return 0, now.Add(maxSleep)
	case now.Before(c.rested):
		return 0, c.rested
	case !failing:
		return min(free, maxClaim), now
	case now.Before(c.trial):
		return 0, c.trial
	}
	return 1, now
}

// tried notes that a trial was made, and how many attempts it began.
func (c *claims) tried(now time.Time, attempts int) {
	if attempts > 0 {
		c.pause = min(2*c.pause, maxTrial)
	}
	c.trial = now.Add(c.pause)
}
