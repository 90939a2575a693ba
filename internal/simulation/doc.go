// Package simulation contains tests that simulate the whole service for a day: host, API,
// dispatcher, clients and receivers. Each simulation runs in a testing/synctest bubble and is
// generated from a seed. The package contains only tests.
//
//	go test ./internal/simulation                        # a few seeds
//	cd internal/simulation && go test -seeds 100         # 100 in memory, 20 on disk, 20 on both; prints combinations of faults
//	cd internal/simulation && go test -for 8h -timeout 0 # new seeds for 8 hours
//	go test ./internal/simulation -run Bolt -seed 17 -count 20
//
// # Events of a seed
//
// Two customers perform about 500 operations. They create, change, rotate, use and delete keys and
// webhooks over HTTP and in Go, publish events singly and in batches, report balances, bandwidth
// and files, send test events and resend deliveries. Keys have random limits, and manage each
// other. A third customer joins, gets some events, is erased, and joins again. Meanwhile
//
//   - calls to the store fail or hang, before or after they take effect: single calls of an
//     operation, or all calls of some methods for up to an hour;
//   - the store's reports of deliveries are duplicated, delayed and reordered (storetest.Noisy);
//   - contexts end, at a check or at a time; clients disconnect;
//   - receivers hang, fail, send Retry-After, refuse connections, answer 410, and recover; many
//     receivers in separate accounts hang at the same time;
//   - the host runs out of file descriptors;
//   - the host's clock is set while it runs and, with a file, between runs. To set it between
//     runs, a seed uses two bubbles, because all bubbles start at the same time;
//   - the host shuts down properly, dies, or finds its store closed while using it; it restarts
//     on the same memory or file;
//   - the file is backed up at random moments, twice within some minutes; backups are verified and
//     restored, also with the closed file as the abandoned file;
//   - one customer floods the host for some minutes with redeliveries to hanging receivers,
//     hundreds of keys whose audit entries the host does not accept, thousands of renames, or names
//     with dead name servers;
//   - the file's disk is full or rejects writes. To reject writes, the store's descriptor is
//     replaced by a read-only one, so that the errors come from the system. Tests under strace
//     cover failed syncs.
//
// At the end all faults are repaired, and after the maximum time of the last retry no delivery may
// be pending.
//
// # Rules
//
// At all times, including after restarts:
//
//   - acknowledged operations have taken effect, and rejected operations have not;
//   - nothing is loaded or sent after an acknowledged deletion, and nothing sent during a pause;
//   - no dead key is accepted, and no key from outside its networks; a revocation ends running
//     requests;
//   - no key exceeds its limits or sees other resources, and a live key may do what its limits
//     cover;
//   - webhooks get only events of their resources, with their headers;
//   - no two attempts of one delivery run concurrently, nothing is sent without being loaded, and
//     nothing is loaded after it is settled;
//   - each retry is on time, and not earlier than its receiver asked for;
//   - attempts are counted exactly, and a failure for lack of host resources does not count;
//   - limits are kept, and requests are signed with valid secrets;
//   - a healthy receiver gets its events within seconds, even if other receivers fail;
//   - a user's request, such as a redelivery, ends the pause of a receiver that was down;
//   - the service explains correctly why an event was or was not delivered;
//   - nothing is left of erased accounts, which look as if they had never existed.
//
// At the end each alert was sent once, each event was sent to all subscribers, and all delivered
// events have arrived. Each rule is a call of world.breach. A seed that breaks a rule prints its
// story.
//
// # Detected faults
//
// The table lists fixed faults that were reintroduced one at a time. "3 of 24" means that a rule
// was broken in 3 of the first 24 seeds. These seeds change when the operations of the simulation
// change.
//
//	a failed commit is acknowledged if the context ended      12 of 12 on disk
//	due times follow a clock that is set between runs          3 of 24 on disk
//	a purge trusts a clock that is a month ahead               8 of 30 on disk
//	a request that is held open outlives its key              10 of 12 in memory, before the stores checked the key, too
//	a lack of descriptors uses up attempts                     6 of 30 in memory
//	a repaired receiver waits for its probe                    9 of 80 in memory, before the fix
//	a stale report makes an attempt early                     10 of 60 in memory (14, 26, 27, 28, 48 …), before the fix
//	hanging receivers delay others after a start               2 of 32 in memory, before the fix
//	an older backup is accepted as the abandoned file         18 of 20 on disk (seeds 2, 3, 6, 8, 10 …)
//	an intact file is reported as damaged during an erasure    2 of 20 on disk (12, 15)
//	audit entries of all accounts share one list and one backoff     9 of 24 in memory (1, 2, 3, 5, 6, 11, 15, 20, 24), before the fix
//	failures of Notify do not make the account back off        4 of 4 with that flood (5, 6, 20, 27)
//	dead names fill all lookup slots                           5 of 6 with that flood (3, 23, 31, 41, 55)
//	one account fills all slots for requested attempts         1 of 6 with that flood (11); 2 of 9 (34, 67), before the fix
//
// Separate tests cover the limits of the simulation: failed syncs on a real file and power losses
// (store/bolt), kills at any instruction (internal/crash), thousands of receivers (webhooks), and
// several nodes (store/postgres).
//
// TestTwins makes the same calls to a memory store and a file, and compares the results.
//
// The plan and the operations of a seed are the same in each run. The order of goroutines at the
// same instant, the jitter and the IDs are not. The rules do not depend on them, but the detection
// of a fault may, so use -count.
package simulation
