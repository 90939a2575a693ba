// Package eventlog stores events, their deliveries and the attempts at these, in some buckets of
// a bbolt file. It knows webhooks by their IDs only, and accounts by their names.
//
// # The door
//
// [Open] returns a [Log] and a [Writer]. Everything goes through one of three handles:
//
//   - [Log] is for everyone, at any time. Find says where the event of an ID is. Take returns an
//     event that was published just now, from memory. NewEvent prepares an event outside of the
//     writer's steps.
//   - [View] reads in one transaction: Event, Body, Deliveries and Delivery for one event; Pending
//     and EventOf for a delivery that is to be attempted; ListEvents, ListDeliveries, Walk and
//     NextEvent; FindOf and Export. A [PendingReader] reads all pending deliveries.
//   - [Step] changes the log, in a transaction of the file's writer: Known and Publish for events;
//     Pending, MakePending, PutPending, RemovePending and Discard for deliveries; Settle for
//     attempts; Index and Purge for maintenance; Erase; [Import]. Flush must run before the commit.
//
// Only Begin makes a Step, and only the Writer has Begin. The store's group commit gets the Writer,
// and nothing else does, so the state of the writer cannot be reached from anywhere else.
//
// Programs that check a file also use the layout: [Segments], the functions on keys and bitmaps,
// and for event IDs [IDSecret], IDRunOf and AppendFromRun.
//
// # The layout
//
// Events and deliveries have numbers of one series: an event one, and its deliveries those that
// follow. The events of a commit are a segment: one row, under its last number, with their bodies
// in the next row. Two bitmaps per segment say which of its deliveries are pending as they were
// published, and which are skipped. A delivery gets a row of its own when an attempt fails, and so
// do attempts, except first ones, which are packed by segment. docs/format.md in the repository has
// all buckets.
package eventlog
