// Package postgres stores everything in a PostgreSQL database that any number of nodes
// share. A node is a process of the host. A host that outgrows one machine passes a Store
// of this package instead of a path and runs any number of copies; nothing else changes:
//
//	store, err := postgres.Open(ctx, os.Getenv("DATABASE_URL"))
//	defer store.Close() // after the Handler
//	api, err := storageapi.NewHandler(storageapi.Config{Store: store})
//
// It is a module of its own, so that hosts that do not use it do not depend on pgx.
//
// It is experimental: its schema will change, and a minor version may need all nodes to stop
// while it migrates. What is stored is kept. See docs/compatibility.md.
//
// # Use
//
// [Open] connects, migrates and checks. A host with its own pool calls [Migrate] once and
// then [New]; a host that applies schema changes with its own tool takes them from [SQL].
// All tables are in one schema, see [InSchema].
//
// # Publishing in the host's transaction
//
// [Store.PublishTx] is a transactional outbox: the event is part of the transaction in
// which the host changes its own data. Both are committed, or neither.
//
// Other events are stored by group commit: those that a node publishes at the same time
// share a statement and a commit.
//
// # Keys
//
// Each request looks up the row of its key, so that a key that is revoked on one node is
// revoked on all nodes at once. [CacheKeys] trades some of that for speed.
//
// # Durability
//
// Methods that change something return once PostgreSQL has committed it: on disk with
// fsync and synchronous_commit on, and on synchronous standbys if there are any. Leases
// are the exception: none survives a crash of the database, and the deliveries under way
// are made again. With a single synchronous standby commits wait for as long as it is
// down: name several, as in synchronous_standby_names = 'ANY 1 (a, b)'.
//
// # How nodes share the work
//
// A claim locks the shards of the queue that it takes from, skips those that other nodes
// have locked, and counts the leases of all nodes, so that the caps of a claim hold for
// all of them together. Leases go by the database's clock. The leases of a node that
// crashed expire, are claimed by others and counted in their Stats. A node learns of new
// deliveries by NOTIFY within some 20 ms, or else within the time of [PollEvery]; that a
// webhook was turned on, or responds again, within a second.
//
// Statements are prepared, and planned once on each connection. With a pooler in
// transaction mode, use one that supports prepared statements.
//
// # What it is tested on
//
// Every change: PostgreSQL 15 by all tests of this package, with crashes and failover, and
// 14.23 and 18.4 by all but the longest. Once, by hand: 14.23, 15.18, 16.14, 17.10 and 18.4
// by all. It needs READ COMMITTED and plain SQL without extensions.
package postgres
