package webhooks

import "github.com/storageapi/storageapi/store/capability"

// A Store keeps webhooks, events and their deliveries. Authors of a backend implement it, in three
// parts. The contract is the comments of their methods together with the rules for every method in
// [package store]: atomicity, errors, contexts, clocks, IDs and copies. Package storetest checks an
// implementation.
//
// [package store]: https://pkg.go.dev/github.com/storageapi/storageapi/store
type Store interface {
	WebhookStore // the webhooks of accounts
	Deliveries   // events in, deliveries out
	History      // the outcome of events; recoveries; removal of old records

	// Capabilities returns the store's optional features.
	Capabilities() capability.Set
}
