// Package store defines what a storage backend of the service is: one [Store]
// that keeps API keys, webhooks, and the events that are owed to them.
//
// # Choosing a store
//
// Package bolt keeps everything in one file and is what a host gets without
// choosing. Package memory keeps nothing beyond its process, and is for tests and
// small tools. Package postgres, a module of its own, is for a host of many processes.
//
// # Writing a store
//
// The contract is the comments of [apikeys.Store] and [webhooks.Store], method
// by method. A store decides nothing: ids, hashes, validation and policy are the
// services' business. Only what ages in it goes by its own clock. Every method is one atomic step, so a backend
// needs no transaction type; a mutex, a single writer or row locks all do.
//
// # What a call leaves behind
//
// A method that returns nil is done: as a whole, seen by every later call, and on the
// disk as safely as the store can. What another result means goes for every method:
//
//   - An error that the contract names, a callback's own error, the context's error,
//     [ErrClosed] and [ErrReadOnly]: nothing has happened.
//   - Any other error: it has happened as a whole or not at all. Who calls again must
//     cope with both.
//
// A context that ends while a call waits for others ends the call at once. One that ends
// while the step is being committed changes nothing any more: the call waits for the
// outcome and returns that. While a disk hangs, those calls hang which are being
// committed, a batch of them at most, and Close. A store beyond a network waits for some
// seconds and then returns an error that is not the context's.
//
// Close lets what is being committed end. A call that came before Close is done or
// returns ErrClosed; in neither case is there doubt.
//
// A callback (change, check) that panics or ends its goroutine changes nothing, and holds
// up nobody else's call. It may run in another goroutine than its caller's, so whether a
// panic becomes an error or reaches the caller is the store's choice.
//
// # Proving a store
//
// Package storetest proves a store. A backend's test is
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) store.Store { return open(t, t.TempDir()) })
//	}
//
// and, if it is to survive a restart, the same with storetest.RunDurable; and with
// storetest.RunFailing if its commits can be made to fail. Run
// them with the race detector. What the process leaves behind when it is killed
// is for the backend's own tests.
//
// # Plugging it in
//
// Pass the store to the host's Config. Whoever opened a store closes it, after
// everything that uses it.
package store

import (
	"errors"
	"io"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/webhooks"
)

// ErrClosed is returned, as it is or wrapped, by every method of a [Store] that
// was closed.
var ErrClosed = errors.New("store is closed")

// ErrReadOnly is wrapped by the errors of methods that write or claim, once a commit of
// the [Store] failed such that it is unknown what the disk holds: a sync failed, say.
// Reads go on. The store writes again after it was closed and opened, so restart the
// host once the disk is sound. Such a store is a [webhooks.Halter].
var ErrReadOnly = errors.New("store is read-only until it is opened again")

// A Store keeps all that the service keeps. It is safe for concurrent use.
type Store interface {
	apikeys.Store
	webhooks.Store

	// Close waits for the steps under way and frees what the store holds open.
	// From then on every other method returns [ErrClosed] and does nothing.
	// Closing a closed store does nothing and returns nil. An error says that
	// something could not be kept; the store is closed nevertheless.
	io.Closer
}
