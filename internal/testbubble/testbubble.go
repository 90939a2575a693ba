// Package testbubble runs a test in a testing/synctest bubble, even under the race detector.
//
//	testbubble.Run(t, func(t *testing.T) { … })
//
// In Go 1.26 all timers of a bubble share one context of the race detector, but can run on two
// threads at once: one thread runs a function of [time.AfterFunc] while another receives from a
// timer's channel. Then the detector crashes with SIGSEGV or reports false races. So under the
// detector a bubble runs on one thread. It still finds all races, since it detects them by the
// order of events.
package testbubble

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

// bubbles counts the running bubbles, so that the last one to end restores GOMAXPROCS.
var bubbles struct {
	sync.Mutex
	n, procs int
}

// Run runs f like [synctest.Test].
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
