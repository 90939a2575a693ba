package storageapitest

import (
	"testing"
	"testing/synctest"

	"github.com/storageapi/storageapi/internal/testbubble"
)

// Bubble runs f in a bubble of testing/synctest, where time is virtual, as [synctest.Test]
// does. The restrictions of synctest apply to f: no sockets, no t.Run, no t.Parallel.
//
// Under the race detector, Bubble limits the process to one thread (runtime.GOMAXPROCS) until
// f returns, which also slows tests that run in parallel. Without the limit, Go 1.26's detector
// crashes or reports false races if a bubble uses both timer functions and timer channels. The
// limit hides no races, because the detector compares the order of events.
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
