package observe

import (
	"context"

	"github.com/storageapi/storageapi/notices"
)

// An Observer is told what happens. Each function may be nil; all must be safe for concurrent
// use. See the package comment for who calls them.
type Observer struct {
	// Authenticated is called for each request that a guard has let through or refused, once
	// its handler has returned, and for each call of auth.Authenticator.Authenticate. ctx is
	// the request's, which may have ended.
	Authenticated func(ctx context.Context, a Authentication)

	// Published is called when the store has answered a call that publishes events:
	// WebhookService.Publish, and a report from which events follow. It is not called for
	// what a store publishes in a transaction of the host's own, and for reports that publish nothing.
	Published func(ctx context.Context, p Publication)

	// Changed is called for each change of a key or webhook that this process has made, and when
	// it warned of a webhook that fails or turned it off. A change whose answer was lost is not told.
	// Notices of other processes, and those that keys expire, are for storageapi.Config.Notify.
	Changed func(n notices.Notice)

	// Claimed is called for each call of the store that claims deliveries.
	Claimed func(c Claim)

	// Attempted is called for each attempt that was made, once it is recorded. Those that were
	// cut short, and test events, are not told.
	Attempted func(a Attempt)

	// Settled is called for each call of the store that records results of attempts.
	Settled func(s Settlement)

	// Committed is called for each commit of a file of store/bolt. Other stores do not call it.
	Committed func(c Commit)

	// Lost is called when calls were not made because the queue was full, before the next one
	// that is: n is how many since the last time. Count it.
	Lost func(n int)
}

// Join returns an Observer that tells all of the given ones, in their order. A function that
// panics keeps the later ones of that call from being called.
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
