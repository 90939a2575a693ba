package webhooks

import (
	"testing"
	"time"
)

// Settlements tell for how long a receiver that is down is left alone: from the
// failure on that shows it, by each probe that fails, and by nothing else.
func TestRest(t *testing.T) {
	b := newPaceBench(t, Config{})
	fail := func(what string, outcome Outcome, least, most time.Duration) {
		t.Helper()
		f := b.begin("acct", "wh", true)
		f.watched = true
		b.end(0, outcome, time.Millisecond)
		if rest := f.settlement.Rest; rest < least || rest > most {
			t.Errorf("Rest of %s = %v, want %v to %v", what, rest, least, most)
		}
	}
	part := func(d time.Duration, by float64) time.Duration { return time.Duration(float64(d) * by) }
	for range downAfter - 1 {
		fail("a failure", Retry, 0, 0)
	}
	for pause := minProbe; pause < maxProbe; pause *= 2 {
		fail("a failure that shows it, or a probe", GiveUp, part(pause, 1-paceJitter), part(pause, 1+paceJitter))
	}
	fail("a probe that was not made", Release, 0, 0)
	fail("a probe that succeeds", Deliver, 0, 0)
	fail("a failure", Retry, 0, 0)
}
