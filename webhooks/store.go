package webhooks

import "context"

// A Store keeps webhooks, events and their deliveries. It is what an author of a backend
// implements, in four parts. The comments of their methods are the contract, together
// with what [package store] says once of every method: atomicity, errors, contexts,
// clocks, ids and copies. Package storetest proves a store.
//
// [package store]: https://pkg.go.dev/github.com/storageapi/storageapi/store
type Store interface {
	WebhookStore // the webhooks of accounts
	Queue        // events in, deliveries out
	History      // what became of events; recoveries; the end of what is old
	AlertStore   // what alerts remember from report to report
}

// A Waker is a [Store] that others write to as well, and that hears of it.
type Waker interface {
	// Wake calls wake whenever others may have made deliveries due, until ctx is
	// done: soon after it if it can, and as often as it likes besides. It need not
	// hear of everything: the wait of ClaimDeliveries is kept to, too.
	Wake(ctx context.Context, wake func())
}

// A Warner is a [Store] that may lose what it has acknowledged, because of how it is set up. [New] logs its warnings.
type Warner interface {
	// Warnings returns sentences that say what is set, what that may lose, and what to do; none if nothing is.
	Warnings() []string
}

// A ConcurrentPurger is a [Store] whose other methods do not wait for Purge.
type ConcurrentPurger interface {
	// PurgesConcurrently does nothing.
	PurgesConcurrently()
}
