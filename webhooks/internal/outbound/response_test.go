package outbound

import (
	"math"
	"net/http"
	"testing"
	"time"
)

// retryAfter returns the delay of a response with the given Retry-After fields.
func retryAfter(now time.Time, values ...string) time.Duration {
	return (&Response{header: http.Header{"Retry-After": values}}).RetryAfter(now)
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

		// Malformed.
		"": 0, " ": 0, "-1": 0, "+1": 0, "1.5": 0, "1e3": 0, "0x10": 0, "1s": 0, "1 2": 0, "1,2": 0, "soon": 0, "NaN": 0, "٣": 0, "\x00": 0,
		"2026-11-20T13:00:00Z": 0, "Fri, 32 Nov 2026 12:00:30 GMT": 0, "Fri, 20 Nov 2026 12:00:30 CET": 0,
	} {
		if got := retryAfter(retryNow, value); got != want {
			t.Errorf("RetryAfter of %q = %v, want %v", value, got, want)
		}
	}
	if got := retryAfter(retryNow); got != 0 {
		t.Errorf("RetryAfter without the field = %v, want 0", got)
	}
	if got := retryAfter(retryNow, "5", "6"); got != 5*time.Second {
		t.Errorf("RetryAfter of two fields, 5 and 6 = %v, want 5s", got)
	}
}

// Any field yields a delay from 0 to 24 hours.
func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{"", "0", "120", "-1", "99999999999999999999", "Fri, 20 Nov 2026 12:00:30 GMT", "Fri Nov 20 13:00:00 2026"} {
		f.Add(seed, int64(0))
	}
	f.Add("Fri, 31 Dec 9999 23:59:59 GMT", int64(math.MinInt64))
	f.Fuzz(func(t *testing.T, value string, now int64) {
		asked := retryAfter(time.Unix(now, 0), value)
		if asked < 0 || asked > 24*time.Hour {
			t.Errorf("RetryAfter of %q at %d = %v, want 0 to 24h", value, now, asked)
		}
	})
}
