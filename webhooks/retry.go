package webhooks

import (
	"math/rand/v2"
	"time"

	"github.com/storageapi/storageapi/webhooks/internal/outbound"
)

// DefaultRetries are the waits between attempts that Standard Webhooks
// recommends: ten attempts over 75.6 hours.
func DefaultRetries() []time.Duration {
	return []time.Duration{
		5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
		10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
	}
}

const retryJitter = 0.2 // by default

// judge decides what becomes of a delivery after an attempt.
func (c *Config) judge(s *Settlement, res result) {
	s.Attempt = res.attempt
	switch {
	case res.attempt.Error == "":
		s.Outcome = Deliver
	case res.canceled, res.fault != outbound.Theirs:
		s.Outcome = Release
	case res.gone:
		s.Outcome, s.Deactivate = GiveUp, OffGone
	default:
		s.Outcome = GiveUp
		if wait, ok := nextRetry(c.Retries, c.RetryJitter, s.Task.Attempt-s.Task.Before, res.retryAfter); ok {
			s.Outcome, s.RetryAfter = Retry, wait
		}
	}
}

// nextRetry returns how long after the given attempt, 1 for the first, the next
// is due; ok is false if that was the last. What the receiver asked for can only
// lengthen the wait.
func nextRetry(schedule []time.Duration, jitter float64, attempt int, asked time.Duration) (wait time.Duration, ok bool) {
	if attempt > len(schedule) {
		return 0, false
	}
	return max(jittered(schedule[max(attempt, 1)-1], jitter), asked), true
}

// jittered returns a duration that differs from d by that part of it at most.
func jittered(d time.Duration, part float64) time.Duration {
	if other := d + time.Duration((2*rand.Float64()-1)*part*float64(d)); other >= 0 { // no overflow
		return other
	}
	return d
}
