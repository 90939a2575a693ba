// Package lasting keeps a request alive after its client has closed its half of the connection.
package lasting

import (
	"context"
	"net/http"
)

// Context returns a context for answering a request. It has the values and the deadline of the
// request's context, but is not canceled with it. net/http cancels a request's context as soon as
// the client closes its half of the connection, but the client may still wait for the response. If
// the request's context has no [http.Server], Context returns it unchanged. Call cancel after the
// response is written.
func Context(request context.Context) (ctx context.Context, cancel context.CancelFunc) {
	if request.Value(http.ServerContextKey) == nil {
		return request, func() {}
	}
	ctx = context.WithoutCancel(request)
	if deadline, ok := request.Deadline(); ok {
		return context.WithDeadline(ctx, deadline)
	}
	return ctx, func() {}
}
