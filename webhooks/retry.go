package webhooks

import (
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/storageapi/storageapi/internal/jitter"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks/internal/outbound"
)

// DefaultRetries returns the waits between attempts that Standard Webhooks recommends: ten attempts
// over 75.6 hours.
func DefaultRetries() []time.Duration {
	return []time.Duration{
		5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
		10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
	}
}

const retryJitter = 0.2 // default

// unsupportedRetry is the wait before this process tries again to read a delivery's record that
// only another process can read.
const unsupportedRetry = time.Minute

// isUnsupported reports whether err means that a record is intact, but this process lacks the
// version or the key to read it.
func isUnsupported(err error) bool {
	return errors.Is(err, errors.ErrUnsupported) || errors.Is(err, signing.ErrSealed)
}

// decide determines the outcome of a delivery after an attempt.
func (d *dispatcher) decide(s *settlement, res result) {
	s.Attempt = res.attempt
	switch {
	case isUnsupported(s.Task.Err):
		s.Postponed, s.RetryAfter = true, unsupportedRetry
	case res.attempt.Error == "":
		s.Effect = driver.Deliver
	case res.canceled, res.fault != outbound.Theirs:
		s.Postponed = true
	case res.gone:
		s.Effect, s.Deactivate = driver.GiveUp, OffGone
	case res.tooLarge:
		s.Effect = driver.GiveUp
	default:
		s.Effect = driver.GiveUp
		task := &s.Task
		if wait, ok := nextRetry(&d.jitter, d.config.Retry.Delays, d.config.Retry.Jitter, task.Attempt-task.Before, res.retryAfter,
			task.Webhook.ID, task.Event.ID, strconv.Itoa(task.Attempt)); ok {
			s.Effect, s.RetryAfter, s.Asked = driver.Retry, wait, wait == res.retryAfter && wait > 0
		}
	}
}

// longestRetry returns the longest wait that nextRetry can return.
func longestRetry(schedule []time.Duration, jitter float64) time.Duration {
	wait := outbound.MaxRetryAfter
	for _, d := range schedule {
		wait = max(wait, time.Duration(min(float64(d)*(1+jitter), math.MaxInt64/2)))
	}
	return wait
}

// nextRetry returns the wait after an attempt, whose number counts from 1. ok is false if it was
// the last attempt. asked is the wait in a Retry-After header, which can only lengthen the wait.
// key identifies the attempt for the jitter.
func nextRetry(source *jitter.Source, schedule []time.Duration, part float64, attempt int, asked time.Duration, key ...string) (wait time.Duration, ok bool) {
	if attempt > len(schedule) {
		return 0, false
	}
	return max(source.Vary(schedule[max(attempt, 1)-1], part, key...), asked), true
}
