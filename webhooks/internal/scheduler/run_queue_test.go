package scheduler

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fill adds due deliveries to webhooks of an account.
func (b *bench) fill(account string, standing Standing, webhooks, each int) {
	for i := range webhooks {
		id := fmt.Sprint(account, i, "-")
		b.hook(account, standing, id)
		for n := range each {
			b.add(id, uint64(n))
		}
	}
}

// byWebhook counts attempts.
func byWebhook(attempts []*attempt) map[string]int {
	n := make(map[string]int)
	for _, a := range attempts {
		n[a.Webhook()]++
	}
	return n
}

func TestNext_AccountsOfAllSizes_TakeTurnsLikeTheirWebhooks(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.fill("many", Proven, 100, 3)
		b.fill("few", Proven, 2, 3)
		b.fill("one", Proven, 1, 3)
		var made []*attempt
		for range 3 {
			made = append(made, b.start(3)...)
			b.succeed(made[len(made)-3:]...) // raises the cap, so that one webhook may have all three
		}
		want := map[string]int{"many0-": 1, "many1-": 1, "many2-": 1, "few0-": 2, "few1-": 1, "one0-": 3}
		if diff := cmp.Diff(want, byWebhook(made)); diff != "" {
			t.Errorf("attempts by webhook, in threes (-want +got):\n%s", diff)
		}
	})
}

func TestNext_StandingsOfManyAccounts_TakeTurnsOverSeveralCalls(t *testing.T) {
	for limit := 1; limit < 5; limit++ {
		inBench(t, Config{}, func(b *bench) {
			standings := []Standing{Untried, Failing, Proven}
			for i := range 40 {
				for _, s := range standings {
					b.fill(fmt.Sprint(s, "of", i), s, 1, 9)
				}
			}
			for range 4 {
				b.succeed(b.start(limit)...)
			}
			for _, s := range standings {
				b.fill(fmt.Sprint("new", s), s, 1, 1) // its turn comes after 40 accounts
			}
			seen := 0
			for n := 0; n < 3*(40+4) && seen < 3; n += limit {
				made := b.start(limit)
				for _, a := range made {
					if a.Webhook()[:3] == "new" {
						seen++
					}
				}
				b.succeed(made...)
			}
			if seen != 3 {
				t.Errorf("limit %d: %d of 3 webhooks behind 40 accounts each had a turn, want 3", limit, seen)
			}
		})
	}
}

func TestNext_FirstAndNudgedComeBeforeRecovered(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.addRecovered("w", 1)
		b.add("w", 2, 3)
		b.addAfter("w", 4, maxPause)
		b.addFirst("w", 5)
		b.nudge("w", 4)
		var made []*attempt
		for range 5 {
			made = append(made, b.start(1)...)
			b.succeed(made[len(made)-1])
		}
		b.want("attempts", names(made), "w4", "w5", "w2", "w3", "w1")
	})
}

func TestNext_RecoveredAndLiveOfDifferentWebhooks_LiveComesFirst(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.addRecovered("a", 1, 2)
		b.add("b", 1, 2)
		b.started(3, "b1", "b2", "a1")
	})
}

func TestNext_NudgedRecoveredDelivery_IsLive(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.addRecovered("w", 1, 2)
		b.add("w", 3)
		b.nudge("w", 2)
		b.started(2, "w2", "w3")
	})
}

func TestNext_WebhookAtItsCap_BeginsOneForEachThatEnds(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.add("w", 1, 2, 3, 4)
		made := b.started(9, "w1", "w2")
		b.started(9)
		b.answer(Unknown, made[0])
		b.started(9, "w3")
		b.started(9)
		b.settle(settled, false, made[0])
		b.started(9)
		b.wantPending(3)
	})
}

func TestNext_AccountAtItsLimit_RejoinsQueueWhenSlotIsFree(t *testing.T) {
	inBench(t, Config{PerAccount: 2}, func(b *bench) {
		b.hook("big", Proven, "a", "b", "c")
		b.hook("small", Proven, "z")
		b.add("a", 1, 2)
		b.add("b", 1)
		b.add("c", 1)
		b.add("z", 1)
		made := b.started(9, "a1", "z1", "b1")
		b.started(9)
		b.succeed(made[0])
		b.started(9, "c1") // before a's second
		b.succeed(made[2])
		b.started(9, "a2")
	})
}

func TestNext_MoreUnrecordedThanAllowed_BeginsNone(t *testing.T) {
	inBench(t, Config{Slots: 4, MaxUnrecorded: 2}, func(b *bench) {
		b.fill("a", Proven, 9, 1)
		made := b.start(b.s.Room())
		b.answer(Success, made[:3]...)
		if got := b.s.Room(); got != 2 {
			t.Errorf("Room() = %d with 1 of 4 in flight and 3 unrecorded of 2 allowed, want 2", got)
		}
		b.start(2)
		if got := b.s.Room(); got != 0 {
			t.Errorf("Room() = %d with 3 of 4 in flight and 3 unrecorded, want 0", got)
		}
		b.settle(settled, false, made[:3]...)
		if got, busy := b.s.Room(), b.s.Busy(); got != 1 || !busy {
			t.Errorf("Room() = %d, Busy() = %v with 3 of 4 in flight, want 1, true", got, busy)
		}
	})
}

func TestNextTrial_BeginsOneToAWebhookWithoutAttempts(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.add("busy", 1, 2)
		made := b.started(1, "busy1")
		var trials []*attempt
		trial := func() (*Slot, Attempt) {
			a := new(attempt)
			trials = append(trials, a)
			return &a.Slot, a
		}
		b.s.NextTrial(trial)
		b.add("idle", 1, 2)
		b.s.NextTrial(trial)
		b.s.NextTrial(trial)
		b.want("trials", names(b.load(trials)), "idle1")
		b.succeed(made...)
		b.s.NextTrial(trial)
		b.want("trials", names(b.load(trials[1:])), "busy2")
	})
}

// Unproven webhooks get two slots each up to a quarter of all slots, and then one each up to half.
// Proven webhooks get the rest.
func TestNext_ManyUnprovenWebhooks_GetHalfOfTheSlots(t *testing.T) {
	inBench(t, Config{Slots: 32}, func(b *bench) {
		b.fill("u", Untried, 10, 5)
		made := b.start(32)
		if got := len(made); got != 8 {
			t.Errorf("%d attempts of 10 unproven webhooks, want 8 first", got)
		}
		for _, more := range []int{2, 0} {
			got := b.start(32)
			if made = append(made, got...); len(got) != more {
				t.Errorf("%d more attempts, want %d: one for each webhook without any", len(got), more)
			}
		}
		b.fill("v", Untried, 20, 1)
		made = append(made, b.start(32)...)
		if len(made) != 16 || !b.s.starved {
			t.Errorf("%d attempts of unproven webhooks, starved %v; want half of 32, true", len(made), b.s.starved)
		}
		b.fill("p", Proven, 20, 1)
		if got := len(b.start(32)); got != 16 {
			t.Errorf("%d attempts of proven webhooks, want the other 16", got)
		}
		b.succeed(made...)
		for range 3 {
			made = b.start(32)
			b.succeed(made...)
		}
		if b.s.starved {
			t.Error("still starved with free slots for all")
		}
	})
}

func TestUpdate_WaitingWebhookBecomesProven_ChangesQueue(t *testing.T) {
	inBench(t, Config{Slots: 8}, func(b *bench) {
		b.fill("u", Untried, 9, 1)
		made := b.start(8)
		left := map[string]bool{}
		for i := range 9 {
			left[fmt.Sprint("u", i, "-")] = true
		}
		for _, a := range append(made, b.start(8)...) {
			delete(left, a.Webhook())
		}
		b.started(8)
		for id := range left {
			b.hook("u", Proven, id)
			b.want("attempts of the webhook that is proven now", names(b.start(1)), id+"0")
			return
		}
	})
}

func TestNextTrial_NoHealthyWebhook_TakesTheNextTurn(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.down(acct, 2, "w")
		var trials []*attempt
		trial := func() (*Slot, Attempt) {
			a := new(attempt)
			trials = append(trials, a)
			return &a.Slot, a
		}
		b.s.NextTrial(trial)
		time.Sleep(b.wake())
		b.s.NextTrial(trial)
		b.s.NextTrial(trial)
		b.want("trials", names(b.load(trials)), "w0")
	})
}
