// Package bolt keeps everything in one file, with go.etcd.io/bbolt. A host that passes a
// path and no store gets it; one that has options passes the store:
//
//	store, err := bolt.Open("storage.db", bolt.Sealed(keys))
//	defer store.Close()
//	api, err := storageapi.NewHandler(storageapi.Config{Store: store})
//
// # Durability
//
// A method that changes something returns when the change is on disk (two
// fsyncs). Changes that are made at the same time share a commit (group commit), so
// throughput grows with the number of callers while each waits for about one commit.
//
// A commit that the system refuses to write, because the disk is full, fails alone.
// If a sync failed, or readers see a commit that may not be on the disk, the store halts:
// it writes and claims nothing more, methods return [store.ErrReadOnly], [Store.Halted]
// says why, and reads go on. To end that, close the file and open it again:
// [Open] makes what it finds durable, or fails, before anything is written.
//
// # One process
//
// The file is locked while it is open: a second [Open], in this process or another,
// fails within a second, or waits with [Wait]. The records of keys in use are also in memory, see
// [CacheKeys], and while a service's Run delivers, some 30 bytes for each pending delivery.
//
// Rows of the file that are in memory (keys, webhooks and their subscribers, counts of keys and requests) follow the one
// rule of internal/mirror. Alerts do not, since they are a write-behind buffer, and neither does the set of accounts that are being
// erased, which is complete.
//
// # The schema
//
// The file carries the number of its schema, which docs/format.md describes. [Open] refuses a file of another one
// with [ErrSchema], and does not change it.
//
// # The clock
//
// Setting the system's clock does not change when a delivery is due. Purge goes by that
// clock, but does not believe it at once: a jump ahead of the monotonic clock
// counts once it has held for a day. The monotonic clock does not survive a restart.
// Therefore the time for which the file was not open does not count for a day after [Open],
// unless it was an hour or less. The file has a mark of the clock to tell, which is at most
// ten minutes old while a service purges.
//
// # The file
//
// It is created readable by its owner only (mode 0600), since it holds signing
// secrets. [Store.Backup] copies it while it is open; a plain copy is one of a closed file only.
// docs/format.md in the repository draws it.
//
// The events of a commit, and the first attempts in it, are a few records, however many
// they are. A delivery that is pending since its event was published is a bit.
//
// Event IDs cost the same whatever they look like: the newest, 32,768 to 65,536, are in memory, with 60 bytes
// each, and the others are in the file, with 12 bytes each. A filter in memory says where to look for these: 2 bytes an ID,
// allocated 4 MiB at a time. [Open] reads the IDs in the file, which takes 50 ms per million if the file is cached.
// Publishing an event again that is stored costs one lookup in the file and a read of the event, 5 µs of processor time.
package bolt
