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
