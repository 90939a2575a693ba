// Package eventlog stores events, deliveries and attempts in some buckets of a bbolt file. It knows
// webhooks only by ID, and accounts only by name.
//
// # Handles
//
// [Open] returns a [Log] and a [Writer]. All access goes through one of three handles:
//
//   - [Log] may be used by any goroutine at any time. Find locates an event by ID. NewEvent
//     prepares an event outside the writer's steps.
//   - [View] reads in one transaction: Event, Body, Deliveries and Delivery for one event; Pending
//     and EventOf for a delivery about to be attempted; ListEvents, ListDeliveries, Walk and
//     NextEvent; FindOf and Export. A [PendingReader] reads all pending deliveries.
//   - [Step] changes the log, in a transaction of the file's writer: Known and Publish for events;
//     Pending, MakePending, PutPending and RemovePending for deliveries; Settle for attempts; Index
//     and Purge for maintenance; Erase; [Import]. Flush must run before the commit.
//
// Only Begin makes a Step, and only the Writer has Begin. Only the store's group commit gets the
// Writer, so no other code can reach the writer's state.
//
// Programs that check a file also use the layout: [Segments], the functions on keys and bitmaps,
// and for event IDs [IDSecret], IDRunOf and AppendFromRun.
//
// # The layout
//
// Events and deliveries share one series of numbers: an event has one, and its deliveries have the
// next ones. The events of a commit form a segment: one row, under its last number, with their
// bodies in the next row. Each segment has two bitmaps: one marks the deliveries that are pending
// as published, the other marks the skipped deliveries. A delivery gets its own row when an attempt
// fails. Attempts have a row each, except first attempts, which are packed by segment.
// docs/format.md in the repository describes all buckets.
package eventlog
