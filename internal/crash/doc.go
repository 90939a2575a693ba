// Package crash holds the tests that kill a host, over and over, and look for what
// it had been told is done. There is nothing in it to import.
//
// The test binary runs itself as the host: the whole service on one bbolt file,
// behind real HTTP. The test is everything around it, and so sees in which order
// things happened: the clients that publish events and create, turn off and delete
// webhooks, and the HTTPS server that receives. A host is killed at a random
// moment, before or after a call of its store, or at a stage of an attempt; then
// the next one goes on with the file, and the last one until all has arrived. In
// another test hosts are killed while they are reported to.
//
//	go test -race ./internal/crash -v -kills 1000
package crash
