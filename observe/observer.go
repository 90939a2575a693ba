package observe

import (
	"context"

	"github.com/storageapi/storageapi/audit"
)

// An Observer holds the functions to call. Each may be nil. All must be safe for concurrent use.
// See the package comment for the goroutines that call them.
type Observer struct {
	// Authenticated is called for each request that a guard has accepted or rejected, after its
	// handler has returned, and for each call of auth.Authenticator.Authenticate. ctx is the
	// request's context, which may be done.
	Authenticated func(ctx context.Context, a Authentication)

	// Published is called after each store call that stores events: for WebhookService.Publish, and
	// for reports that cause events. For events published in the host's own transaction, it is
	// called only if the host calls WebhookService.Published.
	Published func(ctx context.Context, p Publication)

	// Changed is called for each change to a key or webhook by this process, and when this process
	// reports a failing webhook or disables one. It is not called for a change whose outcome the
	// store did not report. For changes by other processes and for expiring keys, use
	// storageapi.Config.Notify.
	Changed func(n audit.Entry)

	// Claimed is called for each call to the store that claims deliveries.
	Claimed func(c Claim)

	// Attempted is called for each attempt whose result is recorded. It is not called for canceled
	// attempts and test events.
	Attempted func(a Attempt)

	// Settled is called for each call to the store that records results of attempts.
	Settled func(s Settlement)

	// Committed is called for each commit to a file of store/bolt, and not by other stores.
	Committed func(c Commit)

	// Lost is called after a full queue has dropped calls, just before the next call. n is the
	// number of calls dropped since the last call to Lost: add it to a counter.
	Lost func(n int)
}

// Join returns an Observer that calls all of the given ones in order. If a function panics, the
// functions after it are not called.
func Join(observers ...Observer) Observer {
	var all Observer
	for _, o := range observers {
		all = Observer{
			Authenticated: joinRequest(all.Authenticated, o.Authenticated),
			Published:     joinRequest(all.Published, o.Published),
			Changed:       join(all.Changed, o.Changed),
			Claimed:       join(all.Claimed, o.Claimed),
			Attempted:     join(all.Attempted, o.Attempted),
			Settled:       join(all.Settled, o.Settled),
			Committed:     join(all.Committed, o.Committed),
			Lost:          join(all.Lost, o.Lost),
		}
	}
	return all
}

func join[T any](first, second func(T)) func(T) {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(value T) { first(value); second(value) }
}

func joinRequest[T any](first, second func(context.Context, T)) func(context.Context, T) {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(ctx context.Context, value T) { first(ctx, value); second(ctx, value) }
}
