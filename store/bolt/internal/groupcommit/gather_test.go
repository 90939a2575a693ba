package groupcommit

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/storageapi/storageapi/internal/boltfault"
	"github.com/storageapi/storageapi/internal/testbubble"
)

// The test checks single steps after a period of many callers: at first they wait a little for
// other steps, and after some commits they no longer wait.
func TestGather_SingleStepsAfterBusyPeriod_StopWaiting(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		w, _ := open(t, new(boltfault.Disk))
		wait := func() (longest time.Duration) {
			began := time.Now()
			if err := w.Run(t.Context(), func(b testBatch) error { return b.Put(bucket, []byte("a"), []byte("b")) }); err != nil {
				t.Error(err)
			}
			return time.Since(began)
		}
		if d := wait(); d > 0 {
			t.Errorf("first step waited %v, want 0", d)
		}
		const many = 256
		for range many {
			go wait()
		}
		synctest.Wait()
		time.Sleep(time.Second)
		waited := 0
		for range 40 {
			switch d := wait(); {
			case d > maxGather+time.Millisecond:
				t.Errorf("step waited %v, want at most %v", d, maxGather)
			case d > 0:
				waited++
			case waited > 0:
				return
			}
		}
		t.Errorf("%d consecutive steps waited; want waiting to stop", waited)
	})
}

func TestRunAlone_AmongOtherSteps_HasOwnTransaction(t *testing.T) {
	w, _ := open(t, new(boltfault.Disk))
	held, entered := make(chan struct{}), make(chan struct{})
	go func() { _ = w.Run(context.Background(), func(testBatch) error { close(entered); <-held; return nil }) }()
	<-entered // later steps wait for the next commit together
	var ids [5]int
	var done sync.WaitGroup
	for i := range ids {
		run := w.Run
		if i == 2 {
			run = w.RunAlone
		}
		done.Go(func() {
			err := run(context.Background(), func(b testBatch) error {
				ids[i] = b.Bolt.ID()
				return b.Put(bucket, []byte{byte(i)}, nil)
			})
			if err != nil {
				t.Error(err)
			}
		})
		for waiting := 0; waiting <= i; runtime.Gosched() {
			w.mu.Lock()
			waiting = len(w.waiting)
			w.mu.Unlock()
		}
	}
	close(held)
	done.Wait()
	if ids[0] != ids[1] || ids[2] != ids[1]+1 || ids[3] != ids[2]+1 || ids[4] != ids[3] {
		t.Errorf("transaction IDs = %v, want step 2 alone and its neighbors in shared transactions", ids)
	}
}
