// Package shards distributes 256 shards of accounts over the live nodes. It has no SQL: [Database]
// has the state that all nodes share, and [Host] has a node's memory of its shards.
//
// There is no leader. Each heartbeat reads all nodes and owners (a [View]), and each node computes
// the same shares from it: a node with more than its share releases some shards, and a node with
// less takes free ones. If two nodes take the same shard, the database gives it to one.
//
// # Terms
//
// A node owns shards for a term, from its registration, under a new number, until its row is gone.
// The row is the fence: settlements lock it first, and find no row once the term is over.
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
// So it begins no attempts, and sends no heartbeat until it has read that its row still exists.
// After a term the next begins, with a new number, unless the node has stopped delivering.
//
// A term also ends if one kind of its work gets no answer for too long although its heartbeats
// arrive, so that another node takes the shards.
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
