// Package storageapitest is a kit for the tests of hosts: the handler on a store in
// memory, keys of given scopes, and receivers in process, which verify and record what
// they are sent.
//
//	kit := storageapitest.New(t)
//	receiver := kit.Subscribe(webhooks.TypeBandwidthLimitReached)
//	upload(kit.API, kit.Account, 2<<40) // code of yours, which reports what was used
//	event := receiver.Next()            // waits for it
//
// # Keys
//
// A route of the host's refuses a key from the request after the one that deleted it:
//
//	kit := storageapitest.New(t)
//	key := kit.Key(scopes.FilesRead)
//	routes := kit.API.Auth.Require(scopes.FilesRead, listFiles)
//	kit.Revoke(key)
//	response := key.Do(routes, "GET", "/v2/files", "") // 401
//
// # Receivers
//
// What a receiver gets went through all that a delivery goes through: the
// scheduler, the signatures and the client that sends it. Only the network is left out: names
// are those of the kit's receivers, connections are in memory, and there is no TLS on them.
// The bytes on them are those that a receiver anywhere gets. A name that is none of a
// receiver's is not found; nothing leaves the process.
//
// A receiver answers 200 to what is signed as it should be, and 401 to all else, unless it
// is told to do otherwise by [Receiver.Script]:
//
//	receiver.Script(storageapitest.Down().For(48 * time.Hour))
//
// # Virtual time
//
// In a bubble of [testing/synctest] time is virtual: it jumps to whatever happens next once
// nothing is left to do at its moment. A receiver that is down for two days is a test of
// less than a second. It begins at midnight UTC of 2000-01-01, which is what periods and expiry
// dates that a test states are compared with.
//
//	func TestReceiverIsDown(t *testing.T) {
//		storageapitest.Bubble(t, func(t *testing.T) {
//			kit := storageapitest.New(t)
//			receiver := kit.Subscribe(webhooks.TypeBalanceLow)
//			receiver.Script(storageapitest.Down().For(48 * time.Hour))
//			publish(kit.API, 100) // code of yours
//			kit.WaitIdle()
//			if got := len(receiver.Events()); got != 100 {
//				t.Errorf("%d of 100 events arrived", got)
//			}
//		})
//	}
//
// Use [Bubble] and not [synctest.Test]: the race detector of Go 1.26 crashes
// where many timers are used in a bubble, as the library does. See there.
//
// Waits between attempts have jitter. Here it goes by a seed, see [Seed], as do the ids of
// webhooks and events: in a bubble a test makes the same attempts at the same times in each
// run, as long as the test itself does one thing after the other. Keys and secrets are
// random all the same.
//
// # Only in tests
//
// [New] panics in a program that is not a test. No other part of the library lets a host
// put its own network under the client that guards which addresses are dialed.
package storageapitest
