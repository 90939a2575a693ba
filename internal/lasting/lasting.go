// Package lasting keeps requests alive whose client has closed its half of the connection.
package lasting

import (
	"context"
	"net/http"
)

// Context returns the context in which to answer a request: it has the values and the
// deadline of the request's own context, but is not cancelled with it. The server of
// net/http cancels a request's context as soon as the client closes its half of the
// connection, although the client may still wait for the response. A context that is not
// a server's is returned unchanged. Call cancel once the response is written.
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
