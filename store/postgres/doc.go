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
// which the host changes its own data. Both are committed, or neither. [Store.Published],
// called after the commit, has the deliveries begin at once.
//
// Other events are stored by group commit: those that a node publishes at the same time
// share a statement and a commit.
//
// # Keys
//
// Each request looks up the row of its key, so that a key that is revoked on one node is
// revoked on all nodes at once.
//
// # Durability
//
// Methods that change something return once PostgreSQL has committed it: on disk with
// fsync and synchronous_commit on, and on synchronous standbys if there are any. When the
// database is restarted, or a standby takes over, nodes load what is pending again, and what
// they were attempting is attempted again. With a single synchronous standby commits wait for
// as long as it is down: name several, as in synchronous_standby_names = 'ANY 1 (a, b)'.
//
// # How nodes share the work
//
// Accounts are in 256 shards. A node that claims owns an equal part of the shards and
// delivers what is pending there from memory, with the scheduler that a file has, too
// (package queue). So the caps of a claim are exact, and an account can have as much as one
// node. A node that only serves requests owns nothing; any node publishes for any account.
//
// A node registers in the database and sends a heartbeat every 1.5 s. Without one for 6 s it
// claims nothing any more, and others remove it and take its shards. Each settlement locks the
// node's row first, so that one which was removed settles nothing: what it was attempting is
// attempted again. [Store.Close] leaves the shards to the others at once.
//
// An owner finds what others published by NOTIFY within some 10 ms, or, while that is 20 changes a second or
// more, by polling every 25 ms; and what was published by PublishTx within the time of [PollEvery]. It reads
// each change once, however late the transaction that made it is committed. See docs/scale.md.
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
