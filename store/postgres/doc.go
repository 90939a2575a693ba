// Package postgres keeps everything in a PostgreSQL database that any number of
// nodes, which are processes with a host in them, share. A host that outgrows one
// machine passes a Store of this package instead of a path, and runs as many copies
// as it likes; nothing else changes.
//
// It is a module of its own, so that hosts which do not use it do not depend on pgx.
//
// # Use
//
//	store, err := postgres.Open(ctx, os.Getenv("DATABASE_URL"))
//	…
//	api, err := storageapi.NewHandler(storageapi.Config{Store: store})
//
// [Open] connects, migrates and checks. A host with a pool of its own calls [Migrate]
// once and then [New]; one that applies schema changes by a tool of its own takes them
// from [SQL]. All tables are in one schema, see [InSchema].
//
// # Publishing in the host's transaction
//
// [Store.PublishTx] makes an event a part of the transaction in which the host changes
// what the event tells of: both are there when it is committed, or neither.
//
// Other events are stored in batches: those that a node publishes at the same time
// share a statement and a commit.
//
// # Keys
//
// A request looks up its key's row, so that what is revoked on one node is so on all at
// once. [CacheKeys] trades some of that for speed.
//
// # Durability
//
// What changes something returns when PostgreSQL has committed it, which is on disk
// with fsync and synchronous_commit on, and on the standbys too if it is told so. Leases
// are the exception: none survives a crash of the database, and what was under way is
// delivered again. With a single synchronous standby commits wait for as
// long as that is down: name several, as in synchronous_standby_names = 'ANY 1 (a, b)'.
//
// # How nodes share the work
//
// A claim locks the parts of the queue that it takes from, passes over what others have
// locked, and counts the leases of all nodes: the caps of a claim hold for all of them
// together. Leases go by the database's clock. What a node that crashed had leased is
// claimed by others when that runs out, and counted in their Stats. What a node is told
// by NOTIFY it knows within some 20 ms, the rest within the time of [PollEvery]; that a
// webhook was turned on, or is up again, within a second.
//
// Statements are prepared, and planned once on each connection: with a pooler that gives
// out connections by the transaction, use one that keeps prepared statements.
//
// # What it is tested on
//
// Every change: PostgreSQL 15 by all tests of this package, crashes and failover too, and
// 14.23 and 18.4 by all but the longest. Once, by hand: 14.23, 15.18, 16.14, 17.10 and 18.4
// by all. It needs READ COMMITTED and plain SQL without extensions.
package postgres
