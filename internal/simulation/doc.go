// Package simulation holds the tests that simulate the whole service: host, API,
// dispatcher, clients and receivers, a day of it in a bubble of testing/synctest, from
// one seed. There is nothing in it to import.
//
//	go test ./internal/simulation                        # a few seeds
//	cd internal/simulation && go test -seeds 500         # as CI does: 500 in memory, 100 on disk, 100 on both; prints what met what
//	cd internal/simulation && go test -for 8h -timeout 0 # ever new ones
//	go test ./internal/simulation -run Bolt -seed 17 -count 20
//
// # What happens in a seed
//
// Some 500 operations of two customers: keys and webhooks are created, changed, rotated,
// used and deleted over HTTP and in Go, events are published one by one and together,
// balances, bandwidth and files are reported, test events are sent, deliveries sent
// again. A third customer comes, is told of some events, is erased, and comes again. Meanwhile
//
//   - calls of the store fail before they happened, or after, or hang and then happen or
//     not: single calls that an operation needs, and all calls of some methods for up to
//     an hour;
//   - what the store reports of deliveries is doubled, delayed and comes in another order
//     (storetest.Noisy);
//   - contexts end, at some look at them or at some time; clients go away;
//   - receivers hang, fail, ask for time, refuse, are gone, and recover; crowds of them
//     hang in accounts of their own;
//   - the host has no descriptors; its clock is set while it runs, and, with a file,
//     while it does not (bubbles all begin at the same time: a seed may have two);
//   - the host ends as it should, or has its store closed under it, or dies; it starts
//     again on the same memory, or on the same file;
//   - backups of the file are made, verified and restored, also with the file that is closed;
//   - one customer floods the host for some minutes: redeliveries in a loop to receivers that
//     hang, hundreds of keys whose notices the host does not take, thousands of renames, or
//     names whose name servers are dead;
//   - the file is backed up at random moments, in pairs; backups are verified and restored;
//   - the disk of the file is full, or takes no writes any more: the descriptor by which
//     the store writes is made to lead elsewhere, so that it is the system which refuses.
//     What syncs do that fail is for the tests under strace to judge.
//
// At the end everything comes right, and within the time that the last retry may take
// nothing is owed any more.
//
// # What must hold
//
// All along: what is acknowledged is done, what is refused is not, also after restarts;
// nothing is loaded or sent after a deletion was acknowledged; nobody is authorised by
// a dead key; no two attempts at one delivery run at a time, nothing is sent that was not
// loaded, or loaded once it is settled; each retry is in its time, and not before what its receiver asked for;
// attempts are counted as they are made, and none is used up by what the host lacks;
// caps are kept; live secrets sign; a receiver that is well gets its events soon,
// with any others that fail; what a person presses ends a pause; of what was erased nothing is
// left, and it is as what never was. At the end: each alert was
// told once, each event is with all that were subscribed, and all that was delivered has
// arrived. Each rule is a call of world.breach; a seed that breaks one tells its story.
//
// # What it finds
//
// Faults that were mended, put back one at a time, and in how many of the first seeds a
// rule was broken. Which seeds these are changes with the operations.
//
//	a failed commit is acknowledged if the context ended      12 of 12 on disk
//	what is due goes by a clock that is set between runs       3 of 24 on disk
//	a purge believes a clock that is a month ahead             8 of 30 on disk
//	a request that is held open outlives its key              10 of 12 in memory, before the stores checked the key, too
//	a lack of descriptors uses attempts up                     6 of 30 in memory
//	a repaired receiver waits for its probe                    9 of 80 in memory, before it was mended
//	a stale report makes an attempt early                     10 of 60 in memory (14, 26, 27, 28, 48 …), before it was mended
//	what hangs holds up others after a start                   2 of 32 in memory, before it was mended
//	an older backup is believed to be the abandoned file      18 of 20 on disk (seeds 2, 3, 6, 8, 10 …)
//	a sound file is called damaged within an erasure           2 of 20 on disk (12, 15)
//	notices of all accounts share one list and one backoff     9 of 24 in memory (1, 2, 3, 5, 6, 11, 15, 20, 24), before it was mended
//	a failing Notify is not backed off by account              4 of 4 with that flood (5, 6, 20, 27)
//	dead names fill the room for lookups                       5 of 6 with that flood (3, 23, 31, 41, 55)
//	one account fills the room for requested attempts          1 of 6 with that flood (11); 2 of 9 (34, 67), before it was mended
//
// What it cannot see has tests of its own: syncs that fail on a real file and power
// losses (store/bolt), kills at any instruction (internal/crash), thousands of receivers
// (webhooks), several nodes (store/postgres).
//
// TestTwins does the same to a memory store and a file, call by call, and wants the same
// results.
//
// A plan is the same each time, and so are the operations; which goroutine of an instant
// comes first, jitter and ids are not. The rules do not depend on it, but whether a seed
// finds a fault may: -count.
package simulation
