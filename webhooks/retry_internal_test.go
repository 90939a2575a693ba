package webhooks

import (
	"math"
	"testing"
	"time"
)

func TestDefaultRetries(t *testing.T) {
	total := time.Duration(0)
	for _, wait := range DefaultRetries() {
		total += wait
	}
	if n := len(DefaultRetries()); n != 9 || total != 75*time.Hour+35*time.Minute+5*time.Second {
		t.Errorf("%d retries in %v, want 9 in 75.6 hours", n, total)
	}
	DefaultRetries()[0] = 0
	if DefaultRetries()[0] != 5*time.Second {
		t.Error("the caller's copy is everybody's")
	}
}

func TestNextRetry_StaysWithinJitter(t *testing.T) {
	schedule := DefaultRetries()
	for attempt := 1; attempt <= len(schedule); attempt++ {
		base := schedule[attempt-1]
		shortest, longest := time.Duration(math.MaxInt64), time.Duration(0)
		for range 2000 {
			wait, ok := nextRetry(nil, schedule, retryJitter, attempt, 0)
			if !ok {
				t.Fatalf("attempt %d has no next", attempt)
			}
			shortest, longest = min(shortest, wait), max(longest, wait)
		}
		if shortest < base*8/10 || longest > base*12/10 {
			t.Errorf("after attempt %d: %v to %v, want %v ±20 %%", attempt, shortest, longest, base)
		}
		if shortest > base*85/100 || longest < base*115/100 { // happens by chance once in 10⁹⁰
			t.Errorf("after attempt %d: %v to %v, which is hardly jitter", attempt, shortest, longest)
		}
	}
}

func TestNextRetry_OtherJitter(t *testing.T) {
	for range 1000 {
		if wait, _ := nextRetry(nil, []time.Duration{time.Hour}, 0, 1, 0); wait != time.Hour {
			t.Fatalf("without jitter: %v", wait)
		}
		if wait, _ := nextRetry(nil, []time.Duration{time.Hour}, 1, 1, 0); wait < 0 || wait > 2*time.Hour {
			t.Fatalf("with all jitter: %v", wait)
		}
	}
}

func TestNextRetry(t *testing.T) {
	const century = 100 * 365 * 24 * time.Hour
	tests := []struct {
		name     string
		schedule []time.Duration
		attempt  int
		asked    time.Duration
		least    time.Duration
		most     time.Duration
		ok       bool
	}{
		{"the last attempt", []time.Duration{time.Second}, 2, 0, 0, 0, false},
		{"the last attempt, whatever is asked", []time.Duration{time.Second}, 2, time.Hour, 0, 0, false},
		{"far past the last", []time.Duration{time.Second}, math.MaxInt, 0, 0, 0, false},
		{"one attempt only", []time.Duration{}, 1, 0, 0, 0, false},
		{"at once", []time.Duration{0}, 1, 0, 0, 0, true},
		{"asked for longer", []time.Duration{time.Second}, 1, time.Hour, time.Hour, time.Hour, true},
		{"asked for shorter", []time.Duration{time.Hour}, 1, time.Second, 48 * time.Minute, 72 * time.Minute, true},
		{"centuries", []time.Duration{century}, 1, 0, century / 10 * 8, century / 10 * 12, true},
		{"the longest", []time.Duration{math.MaxInt64}, 1, 0, math.MaxInt64 / 10 * 7, math.MaxInt64, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for range 100 {
				wait, ok := nextRetry(nil, test.schedule, retryJitter, test.attempt, test.asked)
				if ok != test.ok || wait < test.least || wait > test.most {
					t.Fatalf("got %v, %v", wait, ok)
				}
			}
		})
	}
}
