// Package bolt keeps everything in one file, with go.etcd.io/bbolt: what a host
// gets that passes a path and no store.
//
// # Durability
//
// A method that changes something returns when the change is on disk (two
// fsyncs). Changes that are asked for at the same time share a commit, so
// throughput grows with the number of callers while each waits for about one
// commit. Nothing sleeps to collect a batch.
//
// A commit that the system refuses to write, because the disk is full, fails by itself.
// After one whose sync failed, or of which readers see what may not be on the disk,
// nothing more is written or claimed: methods return [store.ErrReadOnly],
// [Store.Halted] says why, and reads go on. Closing and opening the file ends that:
// [Open] makes what it finds durable, or fails, before anything is written.
//
// # One process
//
// The file is locked while it is open: a second [Open], in whatever process,
// fails within a second. What is due, and what is leased to whom, is kept in
// memory, some 30 bytes a delivery, and read from the file at Open.
//
// # The clock
//
// What is due later is due when it was to be, whatever the system's clock is set to. Purge
// goes by that clock, but does not believe it at once: a jump ahead of the monotonic clock
// counts once it has held for a day. The monotonic clock does not survive a restart, so
// neither does time that the file was not open count for a day after [Open], unless it was
// an hour or less. That is told by a mark of the clock in the file, which is at most ten
// minutes old while a service purges.
//
// # The file
//
// It is created readable by its owner only (mode 0600), since it holds signing
// secrets. It carries a schema version, and a file of a newer version is
// refused. It can be copied while it is closed.
//
// What a commit stores of its events and of first attempts is a few records,
// however many those are; and what is owed as it was published is a bit each.
package bolt
