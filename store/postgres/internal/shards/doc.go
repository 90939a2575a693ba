// Package shards distributes 256 shards of accounts over the live nodes. It contains no SQL: a
// [Database] stores the state that all nodes share, and a [Host] keeps a node's shards in memory.
//
// There is no leader. Each heartbeat reads all nodes and owners (a [View]), and each node computes
// the same shares from it: a node with more than its share releases some shards, and a node with
// less takes free shards. If two nodes take the same shard, the database gives it to one.
//
// # Terms
//
// A node owns shards during a term. A term begins when the node registers, under a new number, and
// is over once its row is gone. The row is the fence: settlements lock it first, and find no row
// once the term is over.
//
//	             registered
//	┌───────────┐          ┌─────────┐  heartbeat not answered   ┌──────────┐
//	│registering├─────────►│ current ├──────────────────────────►│ doubtful │
//	└─────┬─────┘          └──┬──▲───┘      for NodeLasts        └──┬──┬────┘
//	      │                   │  └─────────────────────────────────┘  │
//	      │ failed            │        heartbeat answered             │
//	      │                   │                                       │
//	      │                   │ no row, server restarted, stuck, ctx  │ no row, …
//	      ▼                   ▼                                       ▼
//	┌─────────────────────────────────────────────────────────────────────────┐
//	│                                  over                                   │
//	└─────────────────────────────────────────────────────────────────────────┘
//
// Attempts begin only in a current term. In a doubtful term other nodes may have removed the node.
// So the node begins no attempts, and sends no heartbeat until it has read that its row still
// exists. After a term the node begins another, with a new number, unless it has stopped
// delivering.
//
// A term also ends if one kind of its work gets no answer for too long, even if its heartbeats
// arrive. Another node then takes the shards.
//
// # Shards
//
// The states of a shard in a term:
//
//	         taken, or owned already           more than the share
//	┌────────┐  LoadShards   ┌────────┐  PauseShards   ┌────────┐
//	│ absent ├──────────────►│ served ├───────────────►│ paused │
//	└───▲────┘               └───┬────┘                └───┬────┘
//	    │  not owned, term over  │    nothing in flight,   │
//	    └────────────────────────┴─────────────────────────┘
//	           UnloadShards           or after leaveWait
package shards
