package webhooks

import "github.com/storageapi/storageapi/store/capability"

// A Store keeps webhooks, events and their deliveries. It is what an author of a backend
// implements, in four parts. The comments of their methods are the contract, together
// with what [package store] says once of every method: atomicity, errors, contexts,
// clocks, ids and copies. Package storetest proves a store.
//
// [package store]: https://pkg.go.dev/github.com/storageapi/storageapi/store
type Store interface {
	WebhookStore // the webhooks of accounts
	Deliveries   // events in, deliveries out
	History      // what became of events; recoveries; the end of what is old
	AlertStore   // what alerts remember from report to report

	// Capabilities returns what the store can do besides.
	Capabilities() capability.Set
}
