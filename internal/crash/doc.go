// Package crash contains tests that kill a host repeatedly and check that no acknowledged operation is
// lost. It has nothing to import.
//
// The test binary runs itself as the host: the whole service on one bbolt file, behind real HTTP. The
// test itself runs the clients, which publish events and create, turn off and delete webhooks, and the
// HTTPS server that receives events. So it sees the order of events. A host is killed at a random
// moment, before or after a call of its store, or at a stage of an attempt. Then the next host
// continues with the file, and the last host runs until all events have arrived. Another test kills
// hosts while they get reports.
//
//	go test -race ./internal/crash -v -kills 1000
package crash
