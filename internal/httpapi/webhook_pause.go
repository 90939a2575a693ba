package httpapi

import (
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

// pauseFields returns the fields of a change that pause a webhook or end its pause: paused, and
// pausedUntil for a pause with an end.
func pauseFields(target **time.Time) []field {
	set := func(until time.Time, err error) (time.Time, error) {
		switch {
		case err != nil:
		case *target == nil, (*target).Equal(webhooks.NoEnd) && !until.IsZero():
			*target = &until
		case (*target).IsZero() || until.IsZero():
			err = invalid("paused", "must not be false together with pausedUntil")
		}
		return until, err
	}
	var ignored time.Time
	return []field{
		optional("paused", &ignored, func(paused bool) (time.Time, error) {
			if paused {
				return set(webhooks.NoEnd, nil)
			}
			return set(time.Time{}, nil)
		}),
		optional("pausedUntil", &ignored, func(s string) (time.Time, error) {
			until, err := parseTime("pausedUntil", s)
			if err == nil && until.Before(time.Unix(0, 0)) { // also rejects the zero time, which ends a pause
				err = invalid("pausedUntil", "must be in the future")
			}
			return set(until, err)
		}),
	}
}

// viewPause returns whether a webhook is paused, and when the pause ends; zero if it has no end.
func viewPause(w *webhooks.Webhook) (paused bool, until timestamp) {
	if w.PausedUntil.Before(webhooks.NoEnd) {
		until = timestamp(w.PausedUntil)
	}
	return !w.PausedUntil.IsZero(), until
}
