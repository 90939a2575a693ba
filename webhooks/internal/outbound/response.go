package outbound

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A Response is the result of a Post.
type Response struct {
	Status int // HTTP status; 0 if no response came

	// Body is the beginning of the response body: at most 1 KiB of UTF-8 without NUL. Invalid bytes
	// are replaced and secrets redacted.
	Body string

	Failure  Failure // why no response came
	Fault    Fault   // which side caused Failure
	Canceled bool    // [Canceler.Cancel] ended the Post before a response came

	header http.Header // if nil, no field matters
}

// MaxRetryAfter is the maximum result of [Response.RetryAfter].
const MaxRetryAfter = 24 * time.Hour

// RetryAfter returns the delay requested by the Retry-After field (RFC 9110, section 10.2.3), at
// most MaxRetryAfter. It returns 0 if the field is missing or malformed.
func (r *Response) RetryAfter(now time.Time) time.Duration {
	value := strings.TrimSpace(r.header.Get("Retry-After"))
	if isDigits(value) {
		seconds, err := strconv.ParseUint(value, 10, 32)
		if err != nil || seconds > uint64(MaxRetryAfter/time.Second) {
			return MaxRetryAfter // the number is out of range
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
