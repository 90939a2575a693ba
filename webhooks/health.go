package webhooks

import "time"

// A health remembers what was settled for a webhook while attempts were in flight,
// whose tasks do not tell of it.
type health struct {
	off     time.Time // the webhook was turned off
	refused int       // settlements that the store did not take one by one
}

// diagnose lets a webhook be turned off once, however many of the attempts in flight
// are answered 410.
func (d *dispatcher) diagnose(f *flight, now time.Time) {
	h, s := &f.track.health, &f.settlement
	switch {
	case s.Deactivate == "":
	case !h.off.Before(f.begun): // unknown to the task
		s.Deactivate = ""
	default:
		h.off = now
	}
}
