// Package store defines what a storage backend of the service is: one [Store] that keeps
// API keys, webhooks, events and their deliveries. A host opens one and passes it:
//
//	store, err := bolt.Open("storage.db")
//	defer store.Close()
//	api, err := storageapi.NewHandler(storageapi.Config{Store: store})
//
// # Choosing a store
//
// Package bolt keeps everything in one file and is what a host gets without
// choosing. Package memory keeps nothing beyond its process, and is for tests and
// small tools. Package postgres, a module of its own, is for a host of many processes.
//
// # Writing a store
//
// The contract is the comments of [apikeys.Store], of the four parts of [webhooks.Store], of
// [notices.Store] and of [transfer.Store], method by method, and what follows, which goes for every method. A
// store decides nothing: ids, hashes, validation and policy are the services' business.
// Package queue schedules the deliveries that one process makes; package
// memory is the shortest example of one.
//
// Every method is one atomic step, so a backend needs no transaction type; a mutex, a
// single writer or row locks all do. Methods are safe for concurrent use and appear to
// happen one after the other.
//
// Values are copied in and out: neither side sees what the other changes later. The
// bodies of events and the webhooks of tasks are shared, and neither side changes them.
//
// A store takes any ids and accounts of 1 to 128 bytes, and other strings of up to 4,096
// bytes, all of them UTF-8 without NUL. Ids are ordered byte by byte. No id is given to
// two accounts; if an account and an id do not belong together the answer is
// ErrNotFound. Times come back in UTC, to the millisecond; what is finer is dropped.
//
// Due times and ages go by the store's clock: on a store with a server, the
// server's. Other times are stored as they are given.
//
// # What a call leaves behind
//
// A method that returns nil is done: as a whole, seen by every later call, and on the
// disk as safely as the store can. What another result means goes for every method:
//
//   - An error that the contract names, a callback's own error, the context's error,
//     [ErrClosed], [ErrReadOnly] and what wraps [auth.ErrUnavailable]: nothing has happened.
//   - Any other error: it has happened as a whole or not at all. A caller that tries
//     again must cope with both.
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
// up no other call. It may run in another goroutine than its caller's, so whether a
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
// Pass the store to the host's Config. The host that opened a store closes it, after
// everything that uses it.
package store

import (
	"errors"
	"io"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/store/transfer"
	"github.com/storageapi/storageapi/webhooks"
)

// ErrClosed is returned, as it is or wrapped, by every method of a [Store] that
// was closed.
var ErrClosed = errors.New("store is closed")

// ErrReadOnly is wrapped by the errors of methods that write or claim, once a commit of
// the [Store] failed such that it is unknown what the disk holds: a sync failed, say.
// Reads go on. The store writes again after it was closed and opened, so restart the
// host once the disk is sound. Such a store has the capability Halted. An ErrReadOnly is
// an [auth.ErrUnavailable], too.
var ErrReadOnly error = readOnly{}

type readOnly struct{}

func (readOnly) Error() string        { return "store is read-only until it is opened again" }
func (readOnly) Is(target error) bool { return target == auth.ErrUnavailable }

// A Store keeps all that the service keeps. It is safe for concurrent use.
type Store interface {
	apikeys.Store
	webhooks.Store
	Sizer
	transfer.Store
	Eraser
	notices.Store

	// Close waits for the steps under way and frees what the store holds open.
	// From then on every other method returns [ErrClosed] and does nothing.
	// Closing a closed store does nothing and returns nil. An error says that
	// something could not be kept; the store is closed nevertheless.
	io.Closer
}
