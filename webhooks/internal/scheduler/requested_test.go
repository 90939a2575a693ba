package scheduler

import (
	"fmt"
	"testing"
	"time"
)

// down has webhooks of an account whose breaker is open, with some deliveries of each due.
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

func TestProbe_NothingIsDueYet_WaitsForIt(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.open("w")
		b.hook(acct, Failing, "w")
		for range 6 { // so that the next pause is a minute
			b.add("w", 1)
			time.Sleep(b.wake())
			b.fail(time.Hour, b.started(9, "w1")...)
		}
		b.addAfter("w", 2, 3*time.Second)
		b.s.Probe("w")
		b.started(9)
		if got := b.wake().Round(time.Millisecond); got != 3*time.Second {
			t.Errorf("NextWake in %v, want 3s", got)
		}
		time.Sleep(3 * time.Second)
		b.started(9, "w2")
	})
}

func TestProbe_OldRequest_Ends(t *testing.T) {
	for _, age := range []time.Duration{requestLife, requestLife + time.Millisecond} {
		inBench(t, Config{}, func(b *bench) {
			b.s.Probe("w")
			time.Sleep(age)
			b.down(acct, 1, "other") // so that time passes for the requests
			b.hook(acct, Failing, "w")
			b.add("w", 1)
			made := b.start(9)
			if got, want := made[0].requests, age == requestLife; got != want {
				t.Errorf("after %v the attempt was requested: %v, want %v", age, got, want)
			}
		})
	}
}

func TestProbe_DeliveryCameToNothing_NextNeedNotWait(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.down(acct, 2, "w")
		b.rows[delivery{"w", 0}].pending = false
		b.s.Probe("w")
		b.started(9)
		b.started(9, "w1")
	})
}

func TestProbe_AfterNudgeOfADeliveryUnderWay_RequestsNoOther(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.down(acct, 3, "w")
		b.s.Probe("w")
		made := b.started(9, "w0")
		time.Sleep(requestPause)
		b.nudge("w", 0)
		b.s.Probe("w")
		b.started(9)
		b.s.Probe("w") // of its own
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

func TestProbe_FifthAttemptUnderWay_CutsTheOldestShort(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.down(acct, 9, "w")
		var made []*attempt
		for n := range maxRequested + 1 {
			if n > 0 && made[0].canceled {
				t.Fatalf("the oldest is cut short with %d under way", n)
			}
			b.s.Probe("w")
			made = append(made, b.started(9, fmt.Sprint("w", n))...)
			time.Sleep(requestPause)
		}
		for i, a := range made {
			if a.canceled != (i == 0) {
				t.Errorf("attempt %d was cut short: %v", i, a.canceled)
			}
		}
		b.s.check(t, 0)
	})
}

// Requested attempts have an eighth of the slots, of which an account has a quarter.
func TestProbe_OneAccountRequestsMany_LeavesRoomForOthers(t *testing.T) {
	inBench(t, Config{Slots: 64}, func(b *bench) {
		ids := func(account string, n int) (list []string) {
			for i := range n {
				list = append(list, fmt.Sprint(account, i, "-"))
			}
			return list
		}
		for account, n := range map[string]int{"many": 9, "two": 2, "one": 1} {
			b.down(account, 1, ids(account, n)...)
		}
		for account, n := range map[string]int{"many": 9, "two": 2, "one": 1} {
			for _, id := range ids(account, n) {
				b.s.Probe(id)
			}
		}
		made := b.start(64)
		b.want("attempts", names(made[3:]), "many1-0", "two1-0")
		if len(made) != 5 {
			t.Errorf("%d attempts %v, want 2 of each account at most", len(made), names(made))
		}
		for _, a := range made {
			if a.Webhook() == "many0-" {
				b.fail(time.Hour, a)
			}
		}
		b.started(64, "many2-0")
	})
}

func TestProbe_NoRoomForRequests_CutsShortWhatTakesLong(t *testing.T) {
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
			t.Errorf("the attempt goes on after %v while another is requested", maxRequestLatency)
		}
		b.started(9, "b0")
	})
}
