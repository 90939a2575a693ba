// Package store defines the contract of a storage backend: a [Store] keeps API keys, webhooks,
// events and their deliveries. A host opens one and passes it to the service:
//
//	store, err := bolt.Open("storage.db")
//	defer store.Close()
//	api, err := storageapi.NewHandler(storageapi.Config{WebhookStore: store})
//
// # Choosing a store
//
// Package bolt keeps everything in one file and is the default. Package memory keeps everything in
// the process, for tests and small tools. Package postgres, a separate module, is for hosts with
// several processes.
//
// # Writing a store
//
// The contract consists of the comments of [driver.KeyStore], of the three parts of
// [driver.WebhookStore], of [driver.AlertStore], of [audit.Store] and of [transfer.Store], method by
// method, and of the rules below, which hold
// for every method. A store makes no decisions: IDs, hashes, validation and policy belong to the
// services. Package queue schedules the deliveries that one process makes; package memory is the
// shortest example of a store.
//
// Every method is one atomic step, so a backend needs no transaction type: a mutex, a single writer
// or row locks are enough. Methods are safe for concurrent use and linearizable.
//
// Values are copied in and out: neither side sees later changes by the other. Event bodies and the
// webhooks of tasks are shared, and neither side may change them.
//
// A store accepts any IDs and accounts of 1 to 128 bytes, and other strings of up to 4,096 bytes,
// all in UTF-8 without NUL. IDs are ordered byte by byte. No ID is given to two accounts; if an
// account and an ID do not belong together, the method returns ErrNotFound. Times come back in UTC,
// truncated to milliseconds.
//
// Due times and ages follow the store's clock: for a store with a server, the server's clock. Other
// times are stored as given.
//
// # Results and errors
//
// A method that returns nil has taken effect: completely, visible to every later call, and as
// durably as the store can. Errors mean the same for every method:
//
//   - For an error that the contract names, a callback's own error, the context's error,
//     [ErrClosed], [ErrReadOnly] or an error that wraps [auth.ErrUnavailable], nothing has happened.
//   - For any other error, the step has happened completely or not at all. A caller that
//     retries must cope with both.
//
// If the context ends while a call waits for other calls, the call returns at once. If it ends
// while the step is being committed, it has no effect: the call waits for the outcome and returns
// it. While a disk hangs, only Close and the calls that are being committed hang, at most one
// batch. A store behind a network waits for some seconds and then returns an error that is not the
// context's.
//
// Close waits for commits in progress. A call made before Close either completes or returns
// ErrClosed; its outcome is never uncertain.
//
// A callback (change, check) that panics or ends its goroutine changes nothing and holds up no
// other call. It may run in another goroutine than its caller's, so the store chooses whether a
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
// A backend that survives restarts also runs storetest.RunDurable, and one whose commits can be
// made to fail runs storetest.RunFailing. Run them with the race detector. The state left behind by
// a killed process must be tested by the backend's own tests.
//
// # Using a store
//
// Pass the store to the host's Config. The host that opened a store closes it, after everything
// that uses it has stopped.
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

// ErrReadOnly is wrapped by the errors of methods that write or claim, after a commit failed in a
// way that leaves the contents of the disk unknown, for example on a failed sync. Reads still work.
// The store writes again only after it is closed and reopened: repair the disk, then restart the
// host. A read-only store reports the capability Halted. ErrReadOnly is also an
// [auth.ErrUnavailable].
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
	// returns nil. If Close returns an error, some data could not be saved; the store is closed
	// nevertheless.
	io.Closer
}
