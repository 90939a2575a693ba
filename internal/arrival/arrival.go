// Package arrival bounds how long the body of a request may take to arrive, whatever
// bounds the host's server has.
package arrival

import (
	"net/http"
	"time"
)

// Timeout is how long a body may take: 64 KiB arrive within it at 18 kbit/s.
const Timeout = 30 * time.Second

// Limit makes reads of the request's body fail that take longer than within, counted
// from now, or than the server's ReadTimeout. It does nothing for a request without a
// body. An error that is [http.ErrNotSupported] tells that nothing was bounded: a
// middleware has wrapped w without an Unwrap method, say.
//
// Whoever has read the whole body calls [Lift]. Whoever has not does not: what is left
// of the body is waited for by the server, and that must end as well.
func Limit(w http.ResponseWriter, r *http.Request, within time.Duration) error {
	if r.ContentLength == 0 {
		return nil
	}
	if server, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok && server.ReadTimeout > 0 {
		within = min(within, server.ReadTimeout)
	}
	return http.NewResponseController(w).SetReadDeadline(time.Now().Add(within))
}

// Lift undoes [Limit]: a deadline that passes later would end the request's context.
func Lift(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // as far as Limit could
	}
}
