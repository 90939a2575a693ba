package scheduler

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/storageapi/storageapi/internal/testclock"
)

// snooze pauses a webhook for a time, or ends its pause.
func (b *bench) snooze(id string, left time.Duration) {
	b.update(id, func(w *Webhook) {
		if w.PausedUntil = time.Now().Add(left); left == 0 {
			w.PausedUntil = time.Time{}
		}
	})
}

func TestNext_Paused_BeginsAtTheEnd(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.add("w", 1, 2)
		b.snooze("w", 3*time.Hour)
		b.addRecovered("w", 3)
		b.s.Probe("w")
		b.started(9)
		if got := b.wake(); got != time.Hour {
			t.Errorf("NextWake in %v, want the maximum", got)
		}
		time.Sleep(2 * time.Hour)
		b.add("w", 4)
		b.nudge("w", 2)
		b.started(9)
		wait, err := b.s.LongestWait()
		if backlog := b.s.Backlog("w"); err != nil || wait != 0 || backlog.Pending != 4 || !backlog.OldestDue.IsZero() {
			t.Errorf("LongestWait = %v, %v, Backlog = %+v during the pause", wait, err, backlog)
		}
		time.Sleep(time.Hour - time.Minute)
		if got := b.wake(); got != time.Minute {
			t.Errorf("NextWake in %v, want the end in a minute", got)
		}
		time.Sleep(time.Minute + time.Second)
		if wait, err := b.s.LongestWait(); err != nil || wait != time.Second {
			t.Errorf("LongestWait = %v, %v a second after the pause", wait, err)
		}
		b.succeed(b.started(9, "w2", "w1")...)
		b.started(9, "w4", "w3")
	})
}

func TestNext_PauseEndedEarly_BeginsAtOnce(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.add("w", 1)
		b.snooze("w", time.Hour)
		b.snooze("w", 2*time.Hour)
		time.Sleep(time.Hour)
		b.started(9)
		b.snooze("w", 0)
		if wait, _ := b.s.LongestWait(); wait != 0 {
			t.Errorf("LongestWait = %v just after the pause", wait)
		}
		b.started(9, "w1")
	})
}

// A webhook that is not known yet is loaded once, and then waits for the end of its pause.
func TestAdd_PausedWebhook_IsLoadedOnceBeforeTheEnd(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.hook(acct, Proven, "w")
		b.snooze("w", 800*24*time.Hour)
		b.add("w", 1)
		for range 100 {
			b.started(9)
			time.Sleep(time.Hour)
		}
		if b.loads != 1 {
			t.Errorf("loaded %d times, want once", b.loads)
		}
		time.Sleep(790 * 24 * time.Hour)
		b.started(9)
		if b.loads > 3 {
			t.Errorf("loaded %d times in two years, want once a year", b.loads)
		}
		time.Sleep(10 * 24 * time.Hour)
		b.started(9, "w1")
	})
}

// A stale report of a pause must not stop the deliveries of a webhook that was imported again. A
// pause that was loaded but not reported must stop them.
func TestLoaded_ReportAndLoadDiffer_LoadDecides(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.store("w", 1, 0)
		b.store("w", 2, 0)
		stale := b.pending("w", 1)
		stale.Webhook.Version, stale.Webhook.PausedUntil = 9, time.Now().Add(time.Hour)
		b.s.Add([]Pending{stale, b.pending("w", 2)})
		b.started(9, "w1", "w2")

		b.hook(acct, Proven, "v")
		b.hooks["v"].PausedUntil = time.Now().Add(time.Hour)
		b.store("v", 1, 0)
		stale = b.pending("v", 1)
		stale.Webhook.Version, stale.Webhook.PausedUntil = 9, time.Time{}
		b.s.Add([]Pending{stale})
		b.started(9)
		time.Sleep(30 * time.Minute)
		b.started(9)
		time.Sleep(30 * time.Minute)
		b.started(9, "v1")
	})
}

func TestLoaded_PausedMeanwhile_MakesNoAttempt(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.add("w", 1)
		b.during = func() {
			b.snooze("w", time.Hour)
			b.during = func() {}
		}
		b.started(9)
		time.Sleep(time.Hour)
		b.started(9, "w1")
	})
}

func TestCheckClock_WallClockSet_MovesTheEnds(t *testing.T) {
	clock := new(testclock.Clock)
	inBench(t, Config{Wall: clock.Now}, func(b *bench) {
		b.add("a", 1)
		b.add("b", 1)
		b.snooze("a", time.Hour)
		b.snooze("b", 3*time.Hour)
		if b.s.CheckClock() {
			t.Error("the clock was not set")
		}
		clock.Add(2 * time.Hour)
		if !b.s.CheckClock() || b.s.CheckClock() {
			t.Error("the clock was set once")
		}
		b.started(9, "a1")
		clock.Add(-3 * time.Hour)
		b.s.CheckClock()
		time.Sleep(2 * time.Hour)
		b.started(9)
		time.Sleep(2 * time.Hour)
		b.started(9, "b1")
	})
}

// A pause changes the due times of both lanes of a webhook, which are among the timers.
func TestUpdate_Paused_TimersStayInOrder(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		inBench(t, Config{}, func(b *bench) {
			later := func() time.Duration { return time.Duration(1+r.IntN(100)) * time.Minute }
			for i := range 8 {
				id := fmt.Sprint("w", i, "-")
				b.addAfter(id, 1, later())
				b.store(id, 2, later()).recovered = true
				b.s.Add([]Pending{b.pending(id, 2)})
			}
			b.start(1)
			for range 20 {
				b.snooze(fmt.Sprint("w", r.IntN(8), "-"), later())
				b.s.LongestWait() // applies the report
				b.s.check(t, b.s.t)
			}
		})
	}
}
