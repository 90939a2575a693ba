package scheduler

import (
	"testing"
	"time"
)

func TestCap_SuccessGrows_FailureHalves_RecoveryDoubles(t *testing.T) {
	const most = 16
	now := time.Now()
	w := &webhook{cap: firstCap}
	for want := firstCap + 1; want <= most; want++ {
		for range w.cap {
			w.grow(true, most, now)
		}
		if w.cap != want {
			t.Fatalf("cap %d after a round, want %d", w.cap, want)
		}
	}
	w.grow(true, most, now)
	w.grow(false, most, now)
	if w.cap != most {
		t.Errorf("cap %d, want %d", w.cap, most)
	}
	for _, want := range []int{8, 4, 2, 1, 1} {
		if w.shrink(now); w.cap != want {
			t.Errorf("after a failure: cap %d, want %d", w.cap, want)
		}
	}
	w.restart(now)
	for _, want := range []int{2, 4, 8, 16, 16} {
		w.grow(true, most, now.Add(rampStep/2))
		if w.cap == want && want < most {
			t.Fatalf("cap grew to %d within rampStep", w.cap)
		}
		now = now.Add(rampStep)
		if w.grow(true, most, now); w.cap != want {
			t.Errorf("cap %d, want %d", w.cap, want)
		}
	}
	if w.ramping {
		t.Errorf("still ramping at the maximum cap of %d", w.cap)
	}
}
