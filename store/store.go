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
// by method. A store decides nothing: ids, hashes, clocks, validation and policy
// are the services' business. Every method is one atomic step, so a backend
// needs no transaction type; a mutex, a single writer or row locks all do.
//
// Package storetest proves a store. A backend's test is
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) store.Store { return open(t, t.TempDir()) })
//	}
//
// and, if it is to survive a restart, the same with storetest.RunDurable. Run
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

// ErrReadOnly is wrapped by the error of every method that writes or claims, of a
// [Store] whose disk failed in the middle of a commit, so that nobody knows what it
// holds. Such a call has changed nothing. Reads go on. The store writes again once it
// was closed and opened, which a host does when the disk is sound: that is a restart.
var ErrReadOnly = errors.New("store is read-only until it is opened again")

// A Store keeps all that the service keeps. It is safe for concurrent use.
type Store interface {
	apikeys.Store
	webhooks.Store

	// Close waits for the steps under way and frees what the store holds open.
	// From then on every other method returns [ErrClosed] and does nothing.
	// Closing a closed store does nothing and returns nil.
	io.Closer
}
