package scheduler

import (
	"fmt"
	"testing"
	"time"
)

// down gives an account webhooks with an open breaker and due deliveries.
func (b *bench) down(account string, deliveries int, ids ...string) {
	b.Helper()
	for _, id := range ids {
		b.hook(account, Proven, id)
		b.open(id)
	}
	for _, id := range ids {
		for n := range deliveries {
			b.add(id, uint64(n))
		}
	}
	b.started(99)
}

func TestProbe_OpenBreaker_BeginsOneAttemptASecond(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.down(acct, 9, "w")
		b.s.Probe("unknown")
		b.s.Probe("w")
		b.s.Probe("w")
		first := b.started(9, "w0")
		b.started(9)
		b.s.Probe("w")
		b.started(9)
		if got := b.wake(); got != requestPause {
			t.Errorf("NextWake in %v after a requested attempt, want %v", got, requestPause)
		}
		time.Sleep(requestPause)
		b.started(9, "w1") // while the first one hangs
		b.fail(time.Hour, first...)
		if got := b.s.State("w").Failures; got != openAfter+1 {
			t.Errorf("%d failures, want %d", got, openAfter+1)
		}
	})
}

func TestProbe_NothingDueYet_WaitsForDueTime(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.open("w")
		b.hook(acct, Failing, "w")
		for range 6 { // until the pause is a minute
			b.add("w", 1)
			time.Sleep(b.wake())
			b.fail(time.Hour, b.started(9, "w1")...)
		}
		b.addAfter("w", 2, 3*time.Second)
		b.s.Probe("w")
		b.started(9)
		if got := 3*time.Second - b.wake(); got < 0 || got > time.Millisecond {
			t.Errorf("NextWake %v before the delivery is due, want less than a millisecond", got)
		}
		time.Sleep(3 * time.Second)
		b.started(9, "w2")
	})
}

func TestProbe_OldRequest_Expires(t *testing.T) {
	for _, age := range []time.Duration{requestLife, requestLife + time.Millisecond} {
		inBench(t, Config{}, func(b *bench) {
			b.s.Probe("w")
			time.Sleep(age)
			b.down(acct, 1, "other") // advances the clock
			b.hook(acct, Failing, "w")
			b.add("w", 1)
			made := b.start(9)
			if got, want := made[0].requests, age == requestLife; got != want {
				t.Errorf("after %v: requested = %v, want %v", age, got, want)
			}
		})
	}
}

func TestProbe_NoAttemptWasMade_NextDoesNotWait(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.down(acct, 2, "w")
		b.rows[delivery{"w", 0}].pending = false
		b.s.Probe("w")
		b.started(9)
		b.started(9, "w1")
	})
}

func TestProbe_AfterNudgingInFlightDelivery_RequestsNothing(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.down(acct, 3, "w")
		b.s.Probe("w")
		made := b.started(9, "w0")
		time.Sleep(requestPause)
		b.nudge("w", 0)
		b.s.Probe("w")
		b.started(9)
		b.s.Probe("w") // not after a Nudge
		b.started(9, "w1")
		b.fail(time.Hour, made...)
	})
}

func TestProbe_WebhookIsOff_WaitsUntilItIsOn(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.down(acct, 1, "w")
		b.turn("w", false)
		b.s.Probe("w")
		b.started(9)
		b.turn("w", true)
		b.started(9, "w0")
	})
}

func TestProbe_FifthAttemptInFlight_CancelsTheOldest(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.down(acct, 9, "w")
		var made []*attempt
		for n := range maxRequested + 1 {
			if n > 0 && made[0].canceled {
				t.Fatalf("oldest attempt canceled with %d under way", n)
			}
			b.s.Probe("w")
			made = append(made, b.started(9, fmt.Sprint("w", n))...)
			time.Sleep(requestPause)
		}
		for i, a := range made {
			if a.canceled != (i == 0) {
				t.Errorf("attempt %d: canceled = %v", i, a.canceled)
			}
		}
		b.s.check(t, 0)
	})
}

// Requested attempts may use an eighth of the slots, and one account a quarter of these.
func TestProbe_OneAccountRequestsMany_LeavesRoomForOthers(t *testing.T) {
	inBench(t, Config{Slots: 64}, func(b *bench) {
		many := []string{"m0-", "m1-", "m2-", "m3-", "m4-"}
		b.down("many", 1, many...)
		b.down("two", 1, "two0-", "two1-")
		b.down("one", 1, "one-")
		for _, id := range append(many, "two0-", "two1-", "one-") {
			b.s.Probe(id)
		}
		made := b.start(64)
		b.want("attempts, two of an account at most", names(made), "m0-0", "two0-0", "one-0", "m1-0", "two1-0")
		b.fail(time.Hour, made[0])
		b.started(64, "m2-0")
	})
}

func TestProbe_NoRoomForRequests_CancelsOverdueRequest(t *testing.T) {
	inBench(t, Config{Slots: 8}, func(b *bench) { // room for one
		b.down("a", 1, "a")
		b.down("b", 1, "b")
		b.s.Probe("a")
		made := b.started(9, "a0")
		b.s.Probe("b")
		b.started(9)
		time.Sleep(maxRequestLatency)
		b.s.Tick()
		if !made[0].canceled {
			t.Errorf("attempt not canceled after %v while another is requested", maxRequestLatency)
		}
		b.started(9, "b0")
	})
}
