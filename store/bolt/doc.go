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
// fails within a second, or waits with [Wait]. What is due, and what is leased, is in memory, some 30 bytes
// a delivery, and read from the file by Open. So are the records of keys in use, see [CacheKeys].
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
// The ids of events cost about the same whether they ascend or are random: those of the newest
// events are in memory, some 400,000 at most, of 45 bytes each, and are merged into the file
// by the hundred. [Open] reads these events again, which takes up to half a second if the
// file is cached. Whether a random id is new is told by a filter of 1 to 2 bytes for each that is kept,
// 32 MiB at most, and twice that while the next one is filled. The file is read for it once events are published,
// in the background: 10 M ids in about a second. Until then, and for ids beyond 50 M, ids are
// looked up in the file, which takes several times as long.
package bolt
