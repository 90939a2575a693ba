package webhooks

import (
	"math"
	"net/http"
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

func TestNextRetryStaysWithinTheJitter(t *testing.T) {
	schedule := DefaultRetries()
	for attempt := 1; attempt <= len(schedule); attempt++ {
		base := schedule[attempt-1]
		shortest, longest := time.Duration(math.MaxInt64), time.Duration(0)
		for range 2000 {
			wait, ok := nextRetry(schedule, retryJitter, attempt, 0)
			if !ok {
				t.Fatalf("attempt %d has no next", attempt)
			}
			shortest, longest = min(shortest, wait), max(longest, wait)
		}
		if shortest < base*8/10 || longest > base*12/10 {
			t.Errorf("after attempt %d: %v to %v, want %v ±20 %%", attempt, shortest, longest, base)
		}
		if shortest > base*85/100 || longest < base*115/100 { // 1 in 10⁹⁰
			t.Errorf("after attempt %d: %v to %v, which is hardly jitter", attempt, shortest, longest)
		}
	}
}

func TestNextRetryWithOtherJitter(t *testing.T) {
	for range 1000 {
		if wait, _ := nextRetry([]time.Duration{time.Hour}, 0, 1, 0); wait != time.Hour {
			t.Fatalf("without jitter: %v", wait)
		}
		if wait, _ := nextRetry([]time.Duration{time.Hour}, 1, 1, 0); wait < 0 || wait > 2*time.Hour {
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
				wait, ok := nextRetry(test.schedule, retryJitter, test.attempt, test.asked)
				if ok != test.ok || wait < test.least || wait > test.most {
					t.Fatalf("got %v, %v", wait, ok)
				}
			}
		})
	}
}

var retryNow = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func TestRetryAfter(t *testing.T) {
	const day = 24 * time.Hour
	for value, want := range map[string]time.Duration{
		// Seconds.
		"0": 0, "1": time.Second, "120": 2 * time.Minute, "007": 7 * time.Second, " 30 ": 30 * time.Second, "\t30": 30 * time.Second,
		"86399": day - time.Second, "86400": day, "86401": day, "4294967295": day, "4294967296": day,
		"9223372036854775807": day, "9223372036854775808": day, "18446744073709551616": day, "99999999999999999999999999999999": day,

		// Dates, in the three forms of RFC 9110.
		"Fri, 20 Nov 2026 12:00:30 GMT":  30 * time.Second,
		"Friday, 20-Nov-26 12:01:00 GMT": time.Minute,
		"Fri Nov 20 13:00:00 2026":       time.Hour,
		"Sat, 21 Nov 2026 12:00:00 GMT":  day,
		"Sat, 21 Nov 2026 12:00:01 GMT":  day,
		"Fri, 31 Dec 9999 23:59:59 GMT":  day,
		"Fri, 20 Nov 2026 12:00:00 GMT":  0,
		"Fri, 20 Nov 2026 11:00:00 GMT":  0,
		"Mon, 01 Jan 0001 00:00:00 GMT":  0,

		// Nothing that is understood.
		"": 0, " ": 0, "-1": 0, "+1": 0, "1.5": 0, "1e3": 0, "0x10": 0, "1s": 0, "1 2": 0, "1,2": 0, "soon": 0, "NaN": 0, "٣": 0, "\x00": 0,
		"2026-11-20T13:00:00Z": 0, "Fri, 32 Nov 2026 12:00:30 GMT": 0, "Fri, 20 Nov 2026 12:00:30 CET": 0,
	} {
		if got := retryAfter(http.Header{"Retry-After": {value}}, retryNow); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
	if got := retryAfter(http.Header{}, retryNow); got != 0 {
		t.Errorf("without the header: %v", got)
	}
	if got := retryAfter(http.Header{"Retry-After": {"5", "6"}}, retryNow); got != 5*time.Second {
		t.Errorf("with two of them: %v", got)
	}
}

// Whatever a receiver sends, the wait is at most 24 hours and never shorter than
// the schedule's.
func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{"", "0", "120", "-1", "99999999999999999999", "Fri, 20 Nov 2026 12:00:30 GMT", "Fri Nov 20 13:00:00 2026"} {
		f.Add(seed, int64(0))
	}
	f.Add("Fri, 31 Dec 9999 23:59:59 GMT", int64(math.MinInt64))
	f.Fuzz(func(t *testing.T, value string, now int64) {
		asked := retryAfter(http.Header{"Retry-After": {value}}, time.Unix(now, 0))
		if asked < 0 || asked > 24*time.Hour {
			t.Errorf("%q at %d: %v", value, now, asked)
		}
		if wait, ok := nextRetry([]time.Duration{time.Minute}, retryJitter, 1, asked); !ok || wait < 48*time.Second || wait > 24*time.Hour {
			t.Errorf("%q at %d: next retry in %v", value, now, wait)
		}
	})
}
