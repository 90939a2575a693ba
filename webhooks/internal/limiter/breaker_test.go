package limiter

import (
	"testing"
	"time"
)

// A failure tells for how long a receiver that is down is left alone: from the one on
// that shows it, by each probe that fails, and by nothing else.
func TestRest(t *testing.T) {
	b := newBench(t, 256, 64)
	end := func(what string, outcome Outcome, least, most time.Duration) {
		t.Helper()
		b.begin("acct", "wh", true)
		if rest := b.end(0, outcome, time.Millisecond); rest < least || rest > most {
			t.Errorf("rest after %s = %v, want %v to %v", what, rest, least, most)
		}
	}
	part := func(d time.Duration, by float64) time.Duration { return time.Duration(float64(d) * by) }
	for range openAfter - 1 {
		end("a failure", Failure, 0, 0)
	}
	for pause := minPause; pause < maxPause; pause *= 2 {
		end("a failure that shows it, or a probe", Failure, part(pause, 7./8*(1-pauseJitter)), part(pause, 7./8*(1+pauseJitter)))
	}
	end("a probe that was not made", Unknown, 0, 0)
	end("a probe that succeeds", Success, 0, 0)
	end("a failure", Failure, 0, 0)
}

// A store counts the rest from when it records the failure. If that takes long the next
// turn comes later, but no later than at the end of the rest.
func TestTheTurnComesAfterTheRest(t *testing.T) {
	for _, took := range []time.Duration{0, minPause / 2, 2 * minPause} {
		b := newBench(t, 256, 64)
		for range openAfter - 1 {
			b.begin("acct", "wh", true)
			b.end(0, Failure, time.Millisecond)
		}
		a := new(attempt)
		b.l.Begin(&a.Slot, a, Start{Webhook: "wh", Account: "acct", At: b.now, Turn: true})
		rest := b.l.Observe(&a.Slot, Failure, time.Millisecond, b.now)
		b.l.Release(&a.Slot, b.now)
		turn := b.now.Add(rest * 8 / 7)
		b.now = b.now.Add(took)
		b.l.Recorded(&a.Slot, b.now)
		if end := b.now.Add(rest); turn.Before(end) {
			turn = end
		}
		b.check()
		next := b.l.NextWake(b.now, b.now.Add(time.Hour), true)
		if d := next.Sub(turn); rest == 0 || d < -time.Microsecond || d > time.Microsecond {
			t.Errorf("recorded after %v, with a rest of %v, its turn is %v later than it ought to be", took, rest, d)
		}
	}
}
