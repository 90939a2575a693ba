package groupcommit

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/storageapi/storageapi/internal/testbubble"
)

// Steps that come alone after many wait a little for others, for some commits, and then
// no more.
func TestStepsAfterACrowd(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		w, _ := open(t)
		wait := func() (longest time.Duration) {
			began := time.Now()
			if err := w.Run(t.Context(), func(b testBatch) error { return b.Put(bucket, []byte("a"), []byte("b")) }); err != nil {
				t.Error(err)
			}
			return time.Since(began)
		}
		if d := wait(); d > 0 {
			t.Errorf("the first step waited %v", d)
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
				t.Errorf("a step waited %v", d)
			case d > 0:
				waited++
			case waited > 0:
				return
			}
		}
		t.Errorf("%d steps waited, one after the other", waited)
	})
}

// TestAStepAlone: its transaction has no other step, and those before and after it share one.
func TestAStepAlone(t *testing.T) {
	w, _ := open(t)
	held, entered := make(chan struct{}), make(chan struct{})
	go func() { _ = w.Run(context.Background(), func(testBatch) error { close(entered); <-held; return nil }) }()
	<-entered // what comes now waits together
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
		t.Errorf("transactions %v", ids)
	}
}

// TestRoomIsMade: steps for which the file would have to grow beyond bbolt's limit run again, after
// a step that makes room; one alone fails.
func TestRoomIsMade(t *testing.T) {
	w, undone := open(t)
	rooms := 0
	w.room = func(testBatch) error {
		rooms++
		w.db.MaxSize = 0
		return nil
	}
	large := func(b testBatch) error {
		return b.Put(bucket, []byte("large"), make([]byte, 1<<20))
	}
	w.db.MaxSize = 1 << 16
	if err := w.RunAlone(t.Context(), large); !errors.Is(err, bbolterrors.ErrMaxSizeReached) {
		t.Errorf("alone: %v", err)
	}
	if err := w.Run(t.Context(), large); err != nil || rooms != 1 || *undone != 2 {
		t.Errorf("%v; room was made %d times, %d undone", err, rooms, *undone)
	}
	if err := w.Halted(); err != nil {
		t.Error(err)
	}
}
