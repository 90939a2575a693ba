// Package testbubble runs a test in a bubble of testing/synctest, also under the race
// detector.
//
//	testbubble.Run(t, func(t *testing.T) { … })
//
// Go 1.26 gives all timers of a bubble one context of the race detector, and runs them on
// two threads at once: one runs a function of [time.AfterFunc], another receives from the
// channel of a timer. Then the detector dies of SIGSEGV or tells of races that there are
// not. With one thread at a time it cannot happen, so under the detector a bubble runs on
// one; it sees races by the order of events, so it misses none for that.
package testbubble

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

// bubbles counts those under way, so that the last one to end gives the threads back.
var bubbles struct {
	sync.Mutex
	n, procs int
}

// Run is [synctest.Test].
func Run(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if Raced {
		bubbles.Lock()
		if bubbles.n++; bubbles.n == 1 {
			bubbles.procs = runtime.GOMAXPROCS(1)
		}
		bubbles.Unlock()
		defer func() {
			bubbles.Lock()
			defer bubbles.Unlock()
			if bubbles.n--; bubbles.n == 0 {
				runtime.GOMAXPROCS(bubbles.procs)
			}
		}()
	}
	synctest.Test(t, f)
}
