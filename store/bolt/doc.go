// Package bolt stores everything in one file, with go.etcd.io/bbolt. If a host configures a path
// and no store, storageapi uses this package. A host that needs options opens the file and passes
// the store:
//
//	store, err := bolt.Open("storage.db", bolt.Sealed(keys))
//	defer store.Close()
//	api, err := storageapi.NewHandler(storageapi.Config{Store: store})
//
// # Durability
//
// A method that makes a change returns when the change is on disk (two fsyncs). Concurrent changes
// share a commit (group commit): throughput grows with the number of callers, while each caller
// waits for about one commit.
//
// If the system refuses to write a commit, for example because the disk is full, only that commit
// fails. If a sync fails, or readers see a commit that may not be on disk, the store halts: it no
// longer writes or claims deliveries, and methods that would do so return [store.ErrReadOnly].
// [Store.Halted] returns the reason. Reads continue. To recover, close the file and open it again:
// [Open] makes the contents of the file durable before it writes anything, or returns an error.
//
// # One process
//
// The file is locked while it is open. A second [Open], in this process or another, fails within a
// second; with [Wait], it waits longer. The store keeps in memory the records of keys that are in
// use (see [CacheKeys]). While a service's Run delivers, each pending delivery takes some 30 bytes
// of memory.
//
// Cached rows (keys, webhooks and their subscribers, counts of keys and requests) follow the rules
// in the documentation of internal/mirror. Two structures in memory are not caches: alerts are a
// write-behind buffer, and the set of accounts under erasure is always complete.
//
// # The schema
//
// The file stores its schema number; docs/format.md describes the schema. [Open] refuses a file of
// another schema with [ErrSchema], and does not change it.
//
// # The clock
//
// Setting the system clock does not change when a delivery is due. Purge uses the system clock with
// a delay: if the system clock jumps ahead of the monotonic clock, the jump counts only after a
// day. The monotonic clock does not survive a restart. Therefore, if the file was closed for more
// than an hour, that time counts only a day after [Open]. To measure that time, the file stores a
// mark of the clock, which is at most ten minutes old while a service purges.
//
// # The file
//
// The file is created with mode 0600, since it holds signing secrets. [Store.Backup] copies it
// while it is open; a plain copy is valid only if the file is closed. docs/format.md in the
// repository shows the layout.
//
// A commit stores all of its events and first attempts in a few records, regardless of their
// number. A delivery that has been pending since its event was published takes one bit.
//
// The cost of event IDs does not depend on their form. The newest 32,768 to 65,536 IDs are in
// memory, at 60 bytes each; the others are in the file, at 12 bytes each. A filter in memory saves
// most lookups in the file; it takes 2 bytes per ID, allocated 4 MiB at a time. [Open] reads the
// IDs in the file, which takes 50 ms per million if the file is cached. Publishing a stored event
// again costs one lookup in the file and a read of the event, 5 µs of processor time.
package bolt
