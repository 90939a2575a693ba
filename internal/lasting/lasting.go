// Package lasting keeps requests going whose client has said all that it has to say.
package lasting

import (
	"context"
	"net/http"
)

// Context returns the context in which a request is to be answered: with the values and
// the deadline of the request's own. The context that net/http's server gives a request
// ends as soon as the client closes its half of the connection, which says nothing of
// whether it waits for the answer: that end is left out. What a client does not wait for
// any more is bounded by what bounds it anyway. A context that is not of a server ends
// when it ends. Cancel must be called when the answer is written.
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
