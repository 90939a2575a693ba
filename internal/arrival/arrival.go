// Package arrival limits how long the body of a request may take to arrive, even in a server
// without timeouts.
package arrival

import (
	"net/http"
	"time"
)

// Timeout is how long a body may take: enough for 64 KiB at 18 kbit/s.
const Timeout = 30 * time.Second

// Limit makes reads of the request's body fail after the duration within, or after the server's
// ReadTimeout if that is shorter. It does nothing for a request without a body. It returns
// [http.ErrNotSupported] if w has no read deadline, for example because a middleware has wrapped it
// without an Unwrap method.
//
// Call [Lift] only after the whole body was read. If part of the body is unread, the server itself
// reads the rest, to which the limit must also apply.
func Limit(w http.ResponseWriter, r *http.Request, within time.Duration) error {
	if r.ContentLength == 0 {
		return nil
	}
	if server, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok && server.ReadTimeout > 0 {
		within = min(within, server.ReadTimeout)
	}
	return http.NewResponseController(w).SetReadDeadline(time.Now().Add(within))
}

// Lift removes the deadline of [Limit], which would cancel the request's context later.
func Lift(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // fails where Limit failed
	}
}
