package scheduler

import (
	"fmt"
	"testing"
	"time"
)

// around reports whether pause is within the jitter of want.
func around(pause, want time.Duration) bool {
	return pause >= want-time.Duration(float64(want)*pauseJitter) && pause <= want+time.Duration(float64(want)*pauseJitter)
}

func TestBreaker_ConsecutiveFailures_OpensAndPausesDoubleUpToAMinute(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		for n := range uint64(openAfter) {
			if b.s.State("w").Open {
				t.Fatalf("open after %d failures", n)
			}
			b.add("w", n)
			b.fail(time.Hour, b.started(9, fmt.Sprint("w", n))...)
		}
		b.add("w", 10)
		probes := 0
		for want := minPause; probes < 8; want = min(2*want, maxPause) {
			b.started(9)
			pause := b.wake()
			if !around(pause, want) {
				t.Errorf("pause %d = %v, want %v", probes, pause, want)
			}
			time.Sleep(pause - time.Millisecond)
			b.started(9)
			time.Sleep(time.Millisecond)
			probe := b.started(9, "w10")
			b.started(9) // half-open: one concurrent attempt
			b.fail(0, probe...)
			probes++
		}
		time.Sleep(b.wake())
		probe := b.started(9, "w10")
		b.answer(Unknown, probe...) // no evidence: the pause does not change
		b.s.End(&probe[0].Slot, Fate{Pending: true})
		b.succeed(b.started(9, "w10")...)
		if got, want := b.s.State("w"), (State{Cap: 1, Known: true}); got != want {
			t.Errorf("after a success: %+v, want %+v", got, want)
		}
	})
}

func TestBreaker_SuccessBetweenFailures_StaysClosed(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		for n := range uint64(20) {
			b.add("w", n)
			if made := b.started(9, fmt.Sprint("w", n)); n%openAfter == openAfter-1 {
				b.succeed(made...)
			} else {
				b.fail(time.Hour, made...)
			}
			if b.s.State("w").Open {
				t.Fatalf("open after %d attempts", n)
			}
		}
	})
}

func TestBreaker_Recovers_CapDoublesOnceASecond(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.open("w")
		for n := range uint64(100) {
			b.add("w", n)
		}
		time.Sleep(b.wake())
		for _, want := range []int{1, 1, 2, 4, 8, 16, 16} {
			made := b.start(99)
			if len(made) != want {
				t.Errorf("%d concurrent attempts, want %d", len(made), want)
			}
			b.succeed(made...)
			time.Sleep(rampStep)
		}
	})
}

// If a webhook was failing when the process started, or when the webhook was forgotten, it starts
// with one attempt, and its breaker opens after one failure.
func TestBreaker_WebhookWasFailing_OpensAtFirstFailure(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.hook(acct, Failing, "w")
		b.add("w", 1, 2)
		made := b.started(9, "w1")
		b.started(9)
		b.fail(time.Hour, made...)
		if !b.s.State("w").Open {
			t.Errorf("state = %+v, want open", b.s.State("w"))
		}
	})
}

func TestTrust_OpenBreaker_ClosesUntilTheNextFailure(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.open("w")
		b.add("w", 1, 2)
		b.s.Trust("unknown")
		b.s.Trust("w") // just after an attempt: the next one waits
		b.started(9)
		time.Sleep(2 * requestPause)
		b.fail(0, b.started(9, "w1")...)
		b.started(9)
		time.Sleep(requestPause)
		b.s.Trust("w")
		if b.s.State("w").Open {
			t.Error("breaker is open after Trust, want closed")
		}
		b.fail(0, b.started(9, "w2")...)
		b.started(9)
		if !b.s.State("w").Open {
			t.Error("breaker is closed after a failure of a trusted webhook, want open")
		}
	})
}

func TestObserve_SuccessesThenFailure_CapGrowsAndHalves(t *testing.T) {
	inBench(t, Config{PerWebhook: 4}, func(b *bench) {
		for n := range uint64(60) {
			b.add("w", n)
		}
		for _, want := range []int{2, 3, 4, 4} {
			made := b.start(99)
			if len(made) != want {
				t.Errorf("%d concurrent attempts, want %d", len(made), want)
			}
			b.succeed(made...)
		}
		made := b.start(1)
		b.fail(time.Hour, made...)
		if got := len(b.start(99)); got != 2 {
			t.Errorf("%d attempts after a failure, want half of 4", got)
		}
	})
}

// Webhooks that hang may hold a quarter of the slots. The oldest of their attempts beyond this
// share are canceled.
func TestTick_ReceiversHangInAllSlots_ExcessAttemptsAreCanceled(t *testing.T) {
	inBench(t, Config{Slots: 16}, func(b *bench) {
		b.fill("hang", Proven, 8, 2)
		hanging := b.start(16)
		if len(hanging) != 16 {
			t.Fatalf("%d attempts, want 16", len(hanging))
		}
		b.fill("well", Proven, 16, 1)
		for range 100 {
			time.Sleep(inspectPause)
			b.s.Tick()
		}
		cut := 0
		for _, a := range hanging {
			if a.canceled {
				cut++
				a.ended = true
				b.answer(Unknown, a)
				b.settle(0, false, a)
			}
		}
		if cut != 12 {
			t.Errorf("%d of 16 attempts were canceled, want 12", cut)
		}
		b.s.check(t, 0)
		got := 0
		for _, a := range b.start(16) {
			if a.webhook.account.id == "well" {
				got++
			}
		}
		if got != 12 {
			t.Errorf("%d attempts to healthy receivers, want 12", got)
		}
	})
}

// While many attempts begin at once, a fast receiver may also take longer than firstLatency. Its
// webhook gets another attempt soon, and does not wait behind webhooks that hang.
func TestTick_FirstAttemptTooLong_SecondMayTakeLonger(t *testing.T) {
	inBench(t, Config{Slots: 256}, func(b *bench) {
		b.hook("well", Untried, "well")
		b.add("well", 1)
		b.fill("hang", Untried, 600, 1)
		running := make(map[*attempt]bool)
		begin := func() (second *attempt) {
			for _, a := range b.start(256) {
				if running[a] = true; a.Webhook() == "well" {
					second = a
				}
			}
			return second
		}
		tick := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); {
				time.Sleep(inspectPause)
				b.s.Tick()
				for a := range running {
					if a.canceled {
						delete(running, a)
						b.answer(Unknown, a)
						b.settle(0, false, a)
					}
				}
			}
		}
		first := begin()
		for range 3 {
			begin()
		}
		if first == nil || !b.s.starved {
			t.Fatalf("first attempt %v, starved %v; want an attempt and true", first, b.s.starved)
		}
		tick(firstLatency + inspectPause)
		if !first.canceled || b.s.State("well").Slow {
			t.Errorf("first attempt canceled: %v, slow: %v; want true, false", first.canceled, b.s.State("well").Slow)
		}
		second := begin()
		if second == nil {
			t.Fatal("no second attempt once the slots of canceled attempts are free")
		}
		tick(secondLatency - 2*inspectPause)
		if second.canceled {
			t.Fatal("the second attempt was canceled before secondLatency")
		}
		delete(running, second)
		b.succeed(second)
		for range 10 {
			begin()
			tick(secondLatency)
		}
		if !b.s.State("hang0-").Slow || b.s.State("well").Slow {
			t.Errorf("slow: %v for a receiver that hangs, %v for the other; want true, false", b.s.State("hang0-").Slow, b.s.State("well").Slow)
		}
	})
}

func TestSuspend_NoOtherAttemptUntilEnd(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.add("w", 1, 2, 3)
		made := b.started(1, "w1")
		b.s.Suspend(&made[0].Slot)
		b.started(9)
		made[0].ended = true
		b.s.Observe(&made[0].Slot, Failure, time.Millisecond)
		b.s.FreeSlot(&made[0].Slot, true)
		b.started(9)
		b.settle(settled, false, made...)
		b.started(9, "w2")
	})
}

// While this process is suspended, attempts seem to take long, but no receiver is to blame.
func TestTick_ProcessWasPaused_BlamesNoReceiver(t *testing.T) {
	for _, late := range []time.Duration{0, time.Second} {
		inBench(t, Config{}, func(b *bench) {
			b.add("w", 1)
			b.started(9, "w1")
			time.Sleep(b.wake() + late)
			b.s.Tick()
			if got, want := b.s.State("w").Slow, late == 0; got != want {
				t.Errorf("inspection %v late: slow = %v, want %v", late, got, want)
			}
			time.Sleep(b.wake())
			b.s.Tick()
			if !b.s.State("w").Slow {
				t.Errorf("inspection %v late: slow = false at the end, want true", late)
			}
		})
	}
}
