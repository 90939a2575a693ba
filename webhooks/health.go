package webhooks

import "time"

// A health remembers what was settled for a webhook while attempts were in flight,
// whose tasks do not tell of it.
type health struct {
	proven time.Time // an attempt succeeded
	warned time.Time // the host was warned
	off    time.Time // the webhook was turned off

	refused int // settlements that the store did not take one by one
}

// diagnose decides whether a failure is the one after which a webhook is turned
// off for having failed for FailingLimit, or after which the host is warned. Each
// happens once, whatever else is in flight.
func (d *dispatcher) diagnose(f *flight, now time.Time) {
	h, s := &f.track.health, &f.settlement
	unknown := func(at time.Time) bool { return !at.Before(f.begun) } // to the task
	switch failing := s.Task.Webhook.FailingSince; {
	case s.Outcome == Deliver:
		h.proven = now
		return
	case s.Deactivate != "":
	case !s.Fails(), failing.IsZero(), unknown(h.proven), d.config.FailingLimit < 0:
		return
	case s.Attempt.StartedAt.Sub(failing) >= d.config.FailingLimit:
		s.Deactivate = OffFailing
	case s.Attempt.StartedAt.Sub(failing) >= d.config.FailingLimit/2 && s.Task.Webhook.WarnedAt.IsZero() && !unknown(h.warned):
		s.Warned, h.warned = true, now
	}
	if s.Deactivate == "" {
		return
	}
	if unknown(h.off) {
		s.Deactivate = ""
	} else {
		h.off = now
	}
}
