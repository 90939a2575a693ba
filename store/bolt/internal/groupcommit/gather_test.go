package groupcommit

import (
	"testing"
	"testing/synctest"
	"time"

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
