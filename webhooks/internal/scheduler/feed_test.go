package scheduler

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAdd_Duplicate_IsAttemptedOnceAndLoadedAgain(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.add("w", 1, 1)
		made := b.started(9, "w1")
		b.add("w", 1)
		b.started(9)
		b.succeed(made...)
		loads := b.loads
		b.started(9)
		if got := b.loads - loads; got != 1 {
			t.Errorf("a delivery reported during its attempt was loaded %d times afterwards, want once", got)
		}
		b.wantPending(0)
	})
}

func TestAdd_DuringAttempt_IsAttemptedAgain(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.add("w", 1)
		made := b.started(9, "w1")
		b.answer(Success, made...)
		b.settle(settled, false)
		b.rows[delivery{"w", 1}] = &row{attempts: 1}
		b.add("w", 1) // resent after it was settled, before End
		b.s.End(&made[0].Slot, Fate{})
		again := b.started(9, "w1")
		if got := again[0].item.attempts; got != 1 {
			t.Errorf("earlier attempts of the delivery = %d, want 1", got)
		}
		b.succeed(again...)
		b.wantPending(0)
	})
}

func TestNudge_Stale_MakesNoAttemptEarly(t *testing.T) {
	for _, probed := range []bool{false, true} {
		inBench(t, Config{}, func(b *bench) {
			b.add("w", 1)
			b.fail(time.Hour, b.started(9, "w1")...)
			b.s.Nudge("w", 1)
			if probed {
				b.s.Probe("w")
			}
			b.started(9)
			b.wantPending(1)
			b.nudge("w", 1)
			b.started(9, "w1")
		})
	}
}

func TestAdd_StaleReport_KeepsTheRequestedWait(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.add("w", 1)
		stale := b.pending("w", 1)
		made := b.started(9, "w1")
		b.answer(Failure, made...)
		b.settle(time.Hour, true, made...)
		b.hook(acct, Failing, "w")
		b.s.Add([]Pending{stale})
		b.started(9)
		time.Sleep(2 * longFailing)
		recoverNow(b)
		b.started(9)
		time.Sleep(time.Hour)
		b.started(9, "w1")
	})
}

func TestAdd_StaleReportWithLaterDueTime_KeepsTheEarlierOne(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.add("w", 1)
		b.fail(time.Hour, b.started(9, "w1")...)
		stale := b.pending("w", 1)
		b.add("w", 1)
		b.s.Add([]Pending{stale})
		b.started(9, "w1")
	})
}

func TestAdd_StaleReportOfAReplacedWebhook_IsNotSentToIt(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.add("w", 1) // imported again
		earlier := *b.hooks["w"]
		earlier.Version, earlier.Record = 7, "earlier"
		b.s.Add([]Pending{{Webhook: earlier, Number: 9, Due: time.Now()}})
		made := b.started(9, "w1")
		if got := made[0].record; got != b.hooks["w"] {
			t.Errorf("record = %v, want the imported webhook's", got)
		}
	})
}

func TestUpdate_OlderThanKnown_ChangesNothing(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.add("w", 1)
		older := *b.hooks["w"]
		b.turn("w", false)
		b.s.Update(older)
		b.started(9)
		b.turn("w", true)
		b.started(9, "w1")
	})
}

func TestEnd_Stale_IsLoadedAgain(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.add("w", 1, 2)
		made := b.started(9, "w1", "w2")
		*b.rows[delivery{"w", 1}] = row{attempts: 1} // settled by another process
		*b.rows[delivery{"w", 2}] = row{pending: true, attempts: 1, due: time.Now().Add(time.Minute)}
		b.succeed(made...)
		b.started(9)
		b.wantPending(1)
		time.Sleep(time.Minute)
		if got := b.started(9, "w2")[0].item.attempts; got != 1 {
			t.Errorf("attempts so far = %d, want 1", got)
		}
	})
}

func TestEnd_UncountedAttempt_KeepsAttemptCount(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.add("w", 1)
		made := b.started(9, "w1")
		b.answer(Unknown, made...)
		b.s.End(&made[0].Slot, Fate{Pending: true, After: time.Second})
		b.started(9)
		time.Sleep(time.Second)
		if got := b.started(9, "w1")[0].item.attempts; got != 0 {
			t.Errorf("attempts so far = %d, want none", got)
		}
	})
}

func TestSlot_AfterEnd_CanBeReused(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		a := new(attempt)
		reuse := func() (*Slot, Attempt) { *a = attempt{}; return &a.Slot, a }
		for n := range uint64(4) {
			b.add("w", n)
			if n == 2 {
				b.rows[delivery{"w", n}].pending = false
			}
			b.s.Next(9, 9, reuse)
			if made := b.load([]*attempt{a}); n != 2 {
				b.succeed(made...)
			}
			b.s.check(t, b.s.t)
		}
		b.wantPending(0)
	})
}

func TestLoaded_Unread_IsLoadedAgainAfterDoublingPauses(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.add("w", 1)
		b.unread = true
		b.started(9)
		if b.started(9); b.loads != 2 { // the first load may have reached the store's limit
			t.Errorf("%d loads at once, want 2", b.loads)
		}
		var pauses []time.Duration
		for range 7 {
			loads, wake := b.loads, b.wake()
			pauses = append(pauses, wake)
			time.Sleep(wake)
			if b.started(9); b.loads == loads {
				t.Fatalf("delivery not loaded again after pauses %v", pauses)
			}
		}
		ms := time.Millisecond
		want := []time.Duration{50 * ms, 100 * ms, 200 * ms, 400 * ms, 800 * ms, time.Second, time.Second}
		if diff := cmp.Diff(want, pauses); diff != "" {
			t.Errorf("pauses (-want +got):\n%s", diff)
		}
		b.unread = false
		time.Sleep(time.Second)
		b.fail(0, b.started(9, "w1")...)
		b.unread = true
		loads := b.loads
		b.started(9)
		if b.started(9); b.loads != loads+2 {
			t.Errorf("%d loads at once after a successful load, want 2", b.loads-loads)
		}
	})
}

func TestLoaded_Passive_WaitsForTheWebhookToChange(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.hook(acct, Proven, "w")
		b.store("w", 0, 0)
		report := b.pending("w", 0)
		w := *b.hooks["w"]
		w.On, w.Version = false, 2 // not reported
		b.hooks["w"] = &w
		for n := range uint64(5) {
			b.store("w", n, 0)
			report.Number = n
			b.s.Add([]Pending{report})
		}
		b.started(1)
		b.started(9)
		if got := b.wake(); got != time.Hour || b.loads != 1 {
			t.Errorf("NextWake in %v after %d loads, want in an hour after 1", got, b.loads)
		}
		b.wantPending(5)
		b.turn("w", true)
		b.started(9, "w0", "w1")
	})
}

func TestLoaded_TurnedOffWhileLoading_BeginsNoAttempt(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.add("w", 1)
		b.during = func() { b.turn("w", false) }
		b.started(9)
		b.during = func() {}
		b.wantPending(1)
		b.turn("w", true)
		b.started(9, "w1")
	})
}

func TestPause_GroupWithAnAttempt_BeginsNoMoreUntilForget(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.groups[acct] = 7
		b.add("w", 1)
		made := b.started(9, "w1")
		b.s.Pause([]int32{7})
		b.add("w", 2)
		b.turn("w", true)
		b.add("new", 1)
		b.hook("elsewhere", Proven, "other")
		b.add("other", 1)
		b.started(9, "other1")
		underWay := func(want map[int32]int) {
			t.Helper()
			if diff := cmp.Diff(want, b.s.UnderWay()); diff != "" {
				t.Errorf("UnderWay (-want +got):\n%s", diff)
			}
		}
		underWay(map[int32]int{7: 1, 0: 1})
		b.succeed(made...)
		underWay(map[int32]int{0: 1})
		b.forget("", "", 7)
		b.wantPending(1)
		b.add("w", 2)
		b.started(9, "w2")
	})
}

func TestPause_WhileLoading_BeginsNoAttempt(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.add("w", 1)
		b.during = func() { b.s.Pause([]int32{0}) }
		b.started(9)
		if got := b.s.UnderWay(); len(got) > 0 {
			t.Errorf("UnderWay = %v, want none", got)
		}
		b.wantPending(1)
	})
}

func TestForget_WhileLoading_BeginsNoAttempt(t *testing.T) {
	for _, scope := range [][2]string{{"w", ""}, {"", acct}, {"", ""}} {
		inBench(t, Config{}, func(b *bench) {
			b.add("w", 1)
			b.during = func() { b.s.Forget(scope[0], scope[1], 0) }
			b.started(9)
			b.s.checkEmpty(t)
		})
	}
}

func TestForget_AttemptsInFlight_AreCanceledAndForgotten(t *testing.T) {
	for _, scope := range [][2]string{{"w", ""}, {"", acct}, {"", ""}} {
		inBench(t, Config{}, func(b *bench) {
			b.add("w", 1, 2, 3)
			made := b.started(9, "w1", "w2")
			b.forget(scope[0], scope[1], 0)
			if !made[0].canceled || !made[1].canceled || b.s.Record(&made[0].Slot) != nil {
				t.Errorf("canceled %v and %v, record %v; want both canceled and no record", made[0].canceled, made[1].canceled, b.s.Record(&made[0].Slot))
			}
			b.add("w", 1) // imported again
			again := b.started(9, "w1")
			b.answer(Unknown, made...)
			for _, a := range made {
				b.s.End(&a.Slot, Fate{Stale: true})
			}
			b.started(9)
			b.succeed(again...)
			b.wantPending(0)
			b.s.check(t, b.s.t)
		})
	}
}

func TestEvict_DroppedWebhook_WaitsForItsAttempts(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.hook(acct, Proven, "w", "other")
		b.add("w", 1)
		b.add("other", 1)
		made := b.started(9, "w1", "other1")
		made[0].done = make(chan struct{})
		b.forget("w", "", 0)
		evicted := false
		go func() {
			if err := b.s.Evict(b.Context(), "w", ""); err != nil {
				t.Error(err)
			}
			evicted = true
		}()
		synctest.Wait()
		if evicted || !made[0].canceled || made[1].canceled {
			t.Errorf("before the attempt ends: Evict returned %v, canceled %v, other attempt canceled %v; want false, true, false", evicted, made[0].canceled, made[1].canceled)
		}
		close(made[0].done)
		synctest.Wait()
		if !evicted {
			t.Error("Evict still waits after the attempt has ended")
		}
		b.answer(Unknown, made...)
		if err := b.s.Evict(b.Context(), "", acct); err != nil || made[1].canceled {
			t.Errorf("Evict = %v, ended attempt canceled = %v; want nil, false", err, made[1].canceled)
		}
	})
}

func TestReport_WhileTheSchedulerIsBusy_IsAppliedByTheNextCall(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.s.mu.Lock()
		b.store("w", 1, 0)
		list := []Pending{b.pending("w", 1)}
		b.s.Add(list)
		list[0] = Pending{} // the store reuses the slice
		b.s.Update(Webhook{ID: "w", Version: 2})
		b.s.mu.Unlock()
		if b.wakes != 2 {
			t.Errorf("2 reports called Wake %d times, want 2", b.wakes)
		}
		b.wantPending(1)
		b.started(9)
		b.turn("w", true)
		b.turn("w", true)
		b.started(9, "w1")
	})
}

func TestEvict_AttemptDoesNotEnd_ReturnsErrorOfContext(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.add("w", 1)
		made := b.started(9, "w1")
		made[0].done = make(chan struct{})
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		if err := b.s.Evict(ctx, "w", ""); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Evict = %v, want %v", err, context.DeadlineExceeded)
		}
	})
}

func TestCancelAll_ForgottenWebhooks_CancelsTheirAttemptsToo(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.add("a", 1)
		b.add("b", 1, 2)
		made := b.started(9, "a1", "b1", "b2")
		b.forget("a", "", 0)
		made[0].canceled = false
		b.answer(Success, made[1])
		b.s.CancelAll()
		if !made[0].canceled || made[1].canceled || !made[2].canceled {
			t.Errorf("canceled: %v, %v and %v; want true, false (ended) and true", made[0].canceled, made[1].canceled, made[2].canceled)
		}
		if got := b.s.InFlight(); got != 2 {
			t.Errorf("%d attempts are in flight, want 2", got)
		}
	})
}

func TestAdd_WebhookInAnotherGroup_MovesToIt(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.add("w", 1)
		b.groups[acct] = 2
		b.s.Pause([]int32{2})
		b.add("w", 2)
		b.started(9)
		b.forget("", "", 2)
		b.wantPending(0)
	})
}
