package testbubble_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/storageapi/storageapi/internal/testbubble"
)

// Timer functions and timer channels together must not crash the race detector. With synctest.Test
// instead of Run it crashes nearly every time.
func TestRun_TimersUnderTheRaceDetector_DoNotCrash(t *testing.T) {
	for range 30 {
		testbubble.Run(t, func(*testing.T) {
			var group sync.WaitGroup
			for range 8 {
				group.Go(func() {
					for range 200 {
						called := make(chan struct{})
						time.AfterFunc(time.Millisecond, func() { close(called) })
						timer := time.NewTimer(time.Millisecond)
						<-called
						select {
						case <-timer.C:
						default:
						}
						timer.Stop()
						time.AfterFunc(0, func() {})
						select {
						case <-time.After(0):
						default:
						}
					}
				})
			}
			group.Wait()
			synctest.Wait()
		})
	}
}
