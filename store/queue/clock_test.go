package queue

import (
	"testing"
	"time"
	"unsafe"
)

// set returns what time.Now would have returned at t if the wall clock had been
// set by that much before: the wall clock reads otherwise, the monotonic one the
// same.
func set(t *testing.T, now time.Time, by time.Duration) time.Time {
	t.Helper()
	// As package time has it: with a monotonic reading, wall's upper bits are
	// whole seconds.
	inside := (*struct {
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&now))
	before := now
	inside.wall += uint64(by/time.Second) << 30
	if now.Round(0).Sub(before.Round(0)) != by || now.Sub(before) != 0 {
		t.Fatal("package time has other insides by now")
	}
	return now
}

const day = 24 * time.Hour

// TestSettingTheClock adds what was loaded and what is new, sets the clock, and
// checks that everything is due when it was going to be.
func TestSettingTheClock(t *testing.T) {
	for _, by := range []time.Duration{-day, day, 3000 * day} {
		var q Queue
		now := time.Now()
		add(&q, "new", 1, now.Add(10*time.Second))
		add(&q, "loaded", 2, now.Add(20*time.Second).Round(0)) // without monotonic reading
		later := func(d time.Duration) time.Time { return set(t, now.Add(d), by) }

		got, _ := claim(&q, later(9*time.Second), 9, 9)
		want(t, "before anything is due", got)
		if b := q.Backlog(later(9*time.Second), ""); b.Pending != 2 || !b.OldestDue.IsZero() {
			t.Errorf("Backlog = %+v, want nothing due", b)
		}
		b := q.Backlog(later(15*time.Second), "")
		if off := b.OldestDue.Sub(later(10 * time.Second).Round(0)).Abs(); off > 2*time.Millisecond {
			t.Errorf("OldestDue is %v away from 5s ago, by the clock as it is", off)
		}
		claimed, wait := claimFor(&q, later(15*time.Second), 9, 9, time.Minute)
		if want(t, "10s after", names(claimed), "new1"); (wait - 5*time.Second).Abs() > 2*time.Millisecond {
			t.Errorf("wait = %v, want 5s", wait)
		}
		q.Retry(claimed[0].Token, later(15*time.Second).Add(10*time.Second), 1, false)
		claimed, _ = claimFor(&q, later(24*time.Second), 9, 9, time.Minute)
		want(t, "20s after", names(claimed), "loaded2")
		got, _ = claim(&q, later(26*time.Second), 9, 9)
		want(t, "10s after the retry", got, "new1")

		// Leases end when they were going to.
		if got, _ := claim(&q, later(80*time.Second), 9, 9); len(got) != 0 {
			t.Errorf("claimed %v, want nothing before the lease ends", got)
		}
		got, _ = claim(&q, later(85*time.Second), 9, 9)
		want(t, "after the lease", got, "loaded2")
	}
}

// TestTurningTheClockBack sets it while something is leased and due, once there
// and once back.
func TestTurningTheClockBack(t *testing.T) {
	var q Queue
	now := time.Now()
	for seq := range uint64(4) {
		add(&q, "a", seq, now)
	}
	for i, by := range []time.Duration{0, day, -day, 0} {
		at := set(t, now.Add(time.Duration(1+i)*time.Second), by)
		claimed, _ := claimFor(&q, at, 1, 9, time.Minute)
		if len(claimed) != 1 || claimed[0].Seq != uint64(i) || claimed[0].Attempt != 1 {
			t.Fatalf("claimed %+v with the clock set by %v, want number %d", claimed, by, i)
		}
	}
	if got, wait := claim(&q, set(t, now.Add(5*time.Second), day), 9, 9); len(got) != 0 || (wait-56*time.Second).Abs() > 2*time.Millisecond {
		t.Errorf("claimed %v, wait %v, want nothing for 56s", got, wait)
	}
}
