// Package crash contains tests that kill a host repeatedly and check that no acknowledged operation
// is lost. It contains only tests.
//
// The test binary runs itself as the host: the whole service on one bbolt file, behind real HTTP.
// The test process runs the clients, which publish events and create, disable and delete webhooks.
// It also runs the HTTPS server that receives events, so it knows the order of requests and
// deliveries. A host is killed at a random moment, before or after a call of its store, or at a
// stage of an attempt. The next host continues with the file, and the last host runs until all
// events have arrived. Another test kills hosts while they receive reports.
//
//	go test -race ./internal/crash -v -kills 1000
package crash
