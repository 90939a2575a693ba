package outbound

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A Response is how a Post ended.
type Response struct {
	Status int // of the response; 0: none came

	// Body is how the response's body began: at most 1 KiB of valid UTF-8 without NUL, what
	// is not that having been replaced, and without the secrets.
	Body string

	Failure  Failure // why no response came
	Fault    Fault   // where the cause of that is
	Canceled bool    // no response came because of [Canceler.Cancel]

	header http.Header // nil: nothing in it matters
}

// MaxRetryAfter is the longest that RetryAfter returns.
const MaxRetryAfter = 24 * time.Hour

// RetryAfter returns how long the response asks to be left alone (RFC 9110 section
// 10.2.3), at most 24 hours, and 0 if it does not ask, or not in a form that is known.
func (r *Response) RetryAfter(now time.Time) time.Duration {
	value := strings.TrimSpace(r.header.Get("Retry-After"))
	if isDigits(value) {
		seconds, err := strconv.ParseUint(value, 10, 32)
		if err != nil || seconds > uint64(MaxRetryAfter/time.Second) {
			return MaxRetryAfter // only digits: too many of them
		}
		return time.Duration(seconds) * time.Second
	}
	if value == "" {
		return 0
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), MaxRetryAfter)
}
