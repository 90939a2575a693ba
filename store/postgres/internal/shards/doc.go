// Package shards shares 256 shards of accounts out to the nodes that are alive. It has no SQL: what all
// nodes agree on is behind [Database], and what a node has in memory of its shards behind [Host].
//
// No node leads. Each sends heartbeats, reads all nodes and owners with each of them (a [View]), and
// computes the same shares from it: a node with more than its share leaves some shards, one with less
// takes free ones. Of two that take the same shard, the database lets one have it.
//
// # Terms
//
// A node owns shards for a term: from when it registers, with a number of its own, until its row is
// gone. The row is the fence: settlements lock it first, and those of a term that is over find none.
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
// In a current term attempts begin. In a doubtful one others may have removed the node: it begins no
// attempts, and sends no heartbeat before it has read that its row is still there. After a term that is
// over the next begins, with a new number, unless the node no longer delivers.
//
// A term also ends when one kind of its work has had no answer for too long, though its heartbeats
// arrive: another node is to have the shards.
//
// # Shards
//
// What a term does with a shard:
//
//	         taken, or owned already           more than the share
//	┌────────┐  LoadShards   ┌────────┐  PauseShards   ┌────────┐
//	│ absent ├──────────────►│ served ├───────────────►│ paused │
//	└───▲────┘               └───┬────┘                └───┬────┘
//	    │  not owned, term over  │    nothing in flight,   │
//	    └────────────────────────┴─────────────────────────┘
//	           UnloadShards           or after leaveWait
package shards
