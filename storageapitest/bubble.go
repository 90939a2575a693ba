package storageapitest

import (
	"testing"
	"testing/synctest"

	"github.com/storageapi/storageapi/internal/testbubble"
)

// Bubble runs f in a bubble of testing/synctest, where time is virtual, as [synctest.Test]
// does. All that synctest asks of tests goes for f: no sockets, no t.Run, no t.Parallel.
//
// Under the race detector it lets the process use one thread at a time (runtime.GOMAXPROCS)
// until f returns, and other tests that run in parallel with it, too. Otherwise the detector
// of Go 1.26 crashes, or tells of races that there are not, as soon as functions
// and channels of timers are used in one bubble. It misses no race for that: it goes by the
// order of events.
func Bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	testbubble.Run(t, f)
}

// inBubble reports whether the caller is in a bubble. It must be called by the test's own
// goroutine.
func inBubble() (yes bool) {
	defer func() { yes = recover() == nil }()
	synctest.Wait() // panics outside
	return true
}
