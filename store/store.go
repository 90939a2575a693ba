// Package store defines the contract of a storage backend: a [Store] keeps API keys, webhooks,
// events and their deliveries. A host opens one and passes it to the service:
//
//	store, err := bolt.Open("storage.db")
//	defer store.Close()
//	api, err := storageapi.NewHandler(storageapi.Config{Store: store})
//
// # Choosing a store
//
// Package bolt keeps everything in one file and is the default. Package memory keeps everything in
// the memory of the process, for tests and small tools. Package postgres, a separate module, is for
// hosts with several processes.
//
// # Writing a store
//
// The contract consists of the method comments of the interfaces embedded in [Store], such as
// [driver.KeyStore], [driver.WebhookStore], [driver.AlertStore], [audit.Store] and
// [transfer.Store], and of the rules below, which hold for every method. A store makes no
// decisions: the services generate IDs and hashes, validate input and apply policies. Within a
// process, the service schedules the deliveries. Package memory is the shortest example of a store.
//
// Every method is one atomic step, so a backend needs no transaction type: a mutex, a single writer
// or row locks are enough. Methods are safe for concurrent use and linearizable.
//
// A store copies the values that it takes and returns, so neither the store nor its caller sees
// later changes by the other. Event bodies and the webhooks in reports and loaded deliveries are
// shared instead, and neither side may change them.
//
// A store accepts any IDs and accounts of 1 to 128 bytes, and other strings of up to 4,096 bytes,
// all in UTF-8 without NUL. IDs are ordered byte by byte. A record is found only under its own
// account: if the given account does not have the ID, the method returns ErrNotFound. Times come
// back in UTC, truncated to milliseconds.
//
// Due times and ages follow the store's clock, which is the server's clock if the store has a
// server. Other times are stored as given.
//
// # Results and errors
//
// A method that returns a nil error has taken complete effect, is visible to every later call, and
// is as durable as the store can make it. Errors mean the same for every method:
//
//   - After an error that the contract names, a callback's own error, the context's error,
//     [ErrClosed], [ErrReadOnly] or an error that wraps [auth.ErrUnavailable], nothing has changed.
//   - After any other error, the step has happened completely or not at all. A caller that retries
//     must handle both cases.
//
// If the context ends while a call waits for other calls, the call returns at once. If the context
// ends during the commit, the call ignores this, waits for the outcome and returns it. If a disk
// hangs, only Close and the calls in the batch that is being committed hang. A store behind a
// network waits for some seconds and then returns an error that is not the context's.
//
// Close waits for commits in progress. A call made before Close either completes or returns
// ErrClosed; its outcome is never uncertain.
//
// If a callback (change, check) panics or ends its goroutine, nothing changes and no other call is
// blocked. The callback may run in another goroutine than the call, so the store chooses whether a
// panic becomes an error or reaches the caller.
//
// # Testing a store
//
// Package storetest tests a store against the contract. A backend's test is
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) store.Store { return open(t, t.TempDir()) })
//	}
//
// A backend that survives restarts also runs storetest.RunDurable. A backend whose commits can be
// made to fail also runs storetest.RunFailing. Run them with the race detector. A backend needs
// tests of its own for the state that a killed process leaves behind.
//
// # Using a store
//
// Pass the store to the Config of the services. The host that opened the store must close it, after
// all users of the store have stopped.
package store

import (
	"errors"
	"io"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/transfer"
)

// ErrClosed is returned, possibly wrapped, by every method of a closed [Store].
var ErrClosed = errors.New("store is closed")

// ErrReadOnly is wrapped by the errors of Load and of methods that write, once the contents of the
// disk are unknown, for example after a failed sync. Reads still work. The store writes again only
// after it is closed and reopened: repair the disk, then restart the host. A read-only store
// reports the capability Halted. ErrReadOnly matches [auth.ErrUnavailable] in errors.Is.
var ErrReadOnly error = readOnly{}

type readOnly struct{}

func (readOnly) Error() string {
	return "store is read-only after a failed commit; fix the disk and restart"
}
func (readOnly) Is(target error) bool { return target == auth.ErrUnavailable }

// A Store keeps all data of the service. It is safe for concurrent use.
type Store interface {
	driver.KeyStore
	driver.WebhookStore
	driver.AlertStore
	Sizer
	transfer.Store
	Eraser
	audit.Store

	// Close waits for the steps in progress and releases the store's resources. From then on every
	// other method returns [ErrClosed] and does nothing. Closing a closed store does nothing and
	// returns nil. If Close returns an error, some data could not be saved, but the store is
	// closed.
	io.Closer
}
