// Package storageapitest is a kit for testing hosts. It provides a handler with an
// in-memory store, keys with given scopes, and in-process receivers that verify and
// record webhook requests.
//
//	kit := storageapitest.New(t)
//	receiver := kit.Subscribe(alerts.TypeBandwidthLimitReached)
//	upload(kit.API, kit.Account, 2<<40) // your code, which reports the bandwidth used
//	event := receiver.Next()            // waits for the event
//
// # Keys
//
// A host's route refuses a key immediately after its deletion:
//
//	kit := storageapitest.New(t)
//	key := kit.Key(scopes.FilesRead)
//	routes := kit.API.Auth.Require(scopes.FilesRead, listFiles)
//	kit.Revoke(key)
//	response := key.Do(routes, "GET", "/v2/files", "") // 401
//
// # Receivers
//
// Deliveries to a receiver use the real scheduler, signatures and HTTP client. Only the
// network is replaced: connections are in memory, without TLS, and only the names of the
// kit's receivers resolve. The bytes are the same as for any other receiver, and nothing
// leaves the process.
//
// By default, a receiver answers 200 to correctly signed requests and 401 to all others.
// [Receiver.Script] changes its behavior:
//
//	receiver.Script(storageapitest.Down().For(48 * time.Hour))
//
// # Virtual time
//
// In a bubble of [testing/synctest] time is virtual: it jumps to the next event once all
// goroutines are idle. A test of a receiver that is down for two days takes less than a
// second. Time begins at midnight UTC on 2000-01-01, so choose periods and expiry dates in
// tests accordingly.
//
//	func TestReceiverIsDown(t *testing.T) {
//		storageapitest.Bubble(t, func(t *testing.T) {
//			kit := storageapitest.New(t)
//			receiver := kit.Subscribe(alerts.TypeBalanceLow)
//			receiver.Script(storageapitest.Down().For(48 * time.Hour))
//			publish(kit.API, 100) // your code
//			kit.WaitIdle()
//			if got := len(receiver.Events()); got != 100 {
//				t.Errorf("%d of 100 events arrived", got)
//			}
//		})
//	}
//
// Use [Bubble] instead of [synctest.Test], because the race detector of Go 1.26 crashes on
// the library's use of timers in a bubble. See [Bubble] for details.
//
// The jitter of retries, and the IDs of webhooks and events, derive from a seed, see [Seed].
// In a bubble, a test without concurrency of its own thus makes the same attempts at the same
// times in each run. Keys and secrets are random regardless.
//
// # Only in tests
//
// [New] panics in a program that is not a test. No other part of the library lets a host
// replace the network below the client that restricts the addresses to dial.
package storageapitest
