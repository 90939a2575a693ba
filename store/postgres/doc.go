// Package postgres stores everything in a PostgreSQL database that any number of nodes share. A
// node is one process of the host. To outgrow a single machine, pass a Store of this package
// instead of a file path and run any number of copies; nothing else changes:
//
//	store, err := postgres.Open(ctx, os.Getenv("DATABASE_URL"))
//	defer store.Close() // after the Handler
//	api, err := storageapi.NewHandler(storageapi.Config{Store: store})
//
// The package is a separate module, so that hosts that do not use it do not depend on pgx.
//
// It is experimental: its schema will change, and a minor version may require stopping all nodes
// for the migration. Stored data is kept. See docs/compatibility.md.
//
// # Use
//
// [Open] connects, migrates and checks. A host with its own pool calls [Migrate] once and then
// [New]. A host that applies schema changes with its own tool gets them from [SQL]. All tables are
// in one schema, see [InSchema].
//
// # Publishing in the host's transaction
//
// [Store.PublishTx] is a transactional outbox: the event is part of the transaction in which the
// host changes its own data, and commits or rolls back with it. Call [Store.Published] after the
// commit to start the deliveries at once.
//
// Other events are stored by group commit: events that a node publishes at the same time share a
// statement and a commit.
//
// # Keys
//
// Each request looks up its key's row, so that revoking a key on one node takes effect on all nodes
// at once.
//
// # Durability
//
// A method that changes something returns after PostgreSQL has committed the change. With fsync and
// synchronous_commit on, the change is then on disk, and on the synchronous standbys, if any. After
// a database restart or a failover, nodes reload the pending deliveries and repeat the attempts
// that were in flight. With a single synchronous standby, commits wait while it is down: name
// several, as in synchronous_standby_names = 'ANY 1 (a, b)'.
//
// # How nodes share the work
//
// Accounts are in 256 shards. Each delivering node owns an equal part of the shards and delivers
// their pending events from memory, with the same scheduler that the file store uses. So the
// concurrency limits are exact, and an account's throughput is limited to one node. A node that
// only serves requests owns no shards; any node publishes for any account.
//
// A node registers in the database and sends a heartbeat every 1.5 s. After 6 s without one it
// stops claiming, and other nodes remove it and take its shards. Each settlement first locks the
// node's row, so that a removed node settles nothing; its attempts in flight are repeated.
// [Store.Close] releases the shards to the other nodes at once.
//
// An owner learns of other nodes' changes by NOTIFY within about 10 ms or, at 20 changes a second
// or more, by polling every 25 ms. It finds events of PublishTx within the time of [PollEvery]. It
// reads each change once, even if its transaction commits late. See docs/scale.md.
//
// From its first request on, a process that guards requests also listens for changes of keys by
// other processes. This occupies one more connection, and happens only if the pool has at least
// four. See [capability.Set.WatchKeys].
//
// Statements are prepared, and planned once per connection. A pooler in transaction mode must
// support prepared statements.
//
// # What it is tested on
//
// Every change to this package is tested on PostgreSQL 15 with all tests, including crashes and
// failover, and on 14.23 and 18.4 with all but the longest tests. All tests were also run once, by
// hand, on 14.23, 15.18, 16.14, 17.10 and 18.4. The package needs READ COMMITTED and plain SQL
// without extensions.
package postgres
