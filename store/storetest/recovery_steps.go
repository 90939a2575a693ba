package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
)

// advanceRecovery tests which deliveries AdvanceRecovery makes pending.
func advanceRecovery(run runner) {
	run("returns false if all recoveries are finished", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.settleEvent(newEvent("acct", "event"), 1, driver.GiveUp)
		advanced, err := t.store.AdvanceRecovery(t.Context(), 9)
		t.must(err)
		wantSame(t, "advanced", advanced, false)
		t.claimAll(0)
		t.createRecoveries(newRecovery("acct", "webhook", "recovery", driver.Dead))
		t.advance(9)
		advanced, err = t.store.AdvanceRecovery(t.Context(), 9)
		t.must(err)
		wantSame(t, "advanced", advanced, false)
		t.claimAll(1)
	})

	run("makes deliveries in the given States pending and due now, and no others", func(t *tester) {
		t.createWebhooks(newWebhook("foreign", "foreign"))
		t.inEachState("foreign", "foreign")
		for i, states := range [][]driver.DeliveryState{{driver.Dead}, {driver.Skipped}, {driver.Delivered}, {driver.Delivered, driver.Skipped, driver.Dead}} {
			id := numbered("acct", i)
			t.createWebhooks(newWebhook(id, id))
			t.inEachState(id, id)
			before := map[string]driver.Delivery{}
			for _, d := range t.list(id, id, driver.DeliveryQuery{}) {
				before[d.EventID] = d
			}
			recovery := newRecovery(id, id, id, states...)
			t.createRecoveries(recovery)
			t.advance(9)
			t.wantDone(recovery, len(states))
			for _, got := range t.list(id, id, driver.DeliveryQuery{}) {
				want := before[got.EventID]
				if slices.Contains(states, want.State) {
					if off := time.Since(got.NextAttemptAt).Abs(); off > time.Minute {
						t.Errorf("NextAttemptAt differs from now by %v", off)
					}
					want.State, want.NextAttemptAt = driver.Pending, got.NextAttemptAt
				}
				wantSame(t, "ListDeliveries", got, want)
			}
			for _, task := range t.claimAll(len(states)) {
				wantSame(t, "Task.Event", task.Event, newEvent(id, task.Event.ID))
				if state := before[task.Event.ID].State; !slices.Contains(states, state) {
					t.Errorf("claimed a delivery that was %s, want only %v", state, states)
				}
				made := len(before[task.Event.ID].Attempts)
				wantSame(t, "Task.Attempt and Before", []int{task.Attempt, task.Before}, []int{made + 1, made})
			}
		}
	})

	for _, limit := range []int{1, 2, 1000} {
		run(fmt.Sprintf("recovers all, whatever the limit: %d", limit), func(t *tester) {
			const n = 15
			t.createWebhooks(newWebhook("acct", "webhook"), newWebhook("acct", "other"))
			for i := range n {
				t.settleEvent(newEvent("acct", numbered("event", i)), 2, []driver.Effect{driver.GiveUp, driver.GiveUp, driver.Deliver}[i%3])
				t.enqueue(newEvent("nobody", numbered("event", i)), 0)
			}
			recovery := newRecovery("acct", "webhook", "recovery", driver.Dead)
			t.createRecoveries(recovery)
			t.advance(limit)
			t.wantDone(recovery, 10)
			for _, task := range t.claimAll(10) {
				wantSame(t, "Task.Webhook.ID", task.Webhook.ID, "webhook")
			}
		})
	}

	run("recovers the oldest first, and counts recovered deliveries", func(t *tester) {
		const n = 10
		t.createWebhooks(newWebhook("acct", "webhook"))
		for i := range n {
			t.settleEvent(newEvent("acct", numbered("event", i)), 1, driver.GiveUp)
		}
		t.createRecoveries(newRecovery("acct", "webhook", "recovery", driver.Dead))
		for calls, advanced := 0, true; advanced; calls++ {
			before := t.recovery("acct", "recovery")
			var err error
			advanced, err = t.store.AdvanceRecovery(t.Context(), 2)
			t.must(err)
			wantSame(t, "advanced, as the recovery was unfinished", advanced, !before.Done)
			recovery := t.recovery("acct", "recovery")
			for i := range n {
				want := driver.Dead
				if i < recovery.Recovered {
					want = driver.Pending
				}
				wantSame(t, "State of "+numbered("event", i), t.delivery("acct", numbered("event", i)).State, want)
			}
			if calls > 100*n {
				t.Fatal("AdvanceRecovery does not end")
			}
		}
		wantSame(t, "Recovered", t.recovery("acct", "recovery").Recovered, n)
		t.claimAll(n)
	})

	run("filters by From (inclusive) and To (exclusive)", func(t *tester) {
		const n = 4
		t.createWebhooks(newWebhook("acct", "webhook"))
		var at []time.Time
		for i := range n {
			t.border()
			t.settleEvent(newEvent("acct", numbered("event", i)), 1, driver.GiveUp)
			at = append(at, t.delivery("acct", numbered("event", i)).PublishedAt)
		}
		for from := range n {
			for to := range n {
				recovery := newRecovery("acct", "webhook", fmt.Sprint("recovery ", from, to), driver.Dead)
				recovery.From, recovery.To = at[from], at[to]
				t.createRecoveries(recovery)
				t.advance(1)
				want := max(0, to-from)
				t.wantDone(recovery, want)
				for _, task := range t.claimAll(want) {
					if task.Event.ID < numbered("event", from) || task.Event.ID >= numbered("event", to) {
						t.Errorf("recovered %s, want events from %d to before %d", task.Event.ID, from, to)
					}
					t.settle(settlement(task, driver.GiveUp))
				}
			}
		}
	})

	run("recovers each delivery once, even if its state changes meanwhile", func(t *tester) {
		const n = 10
		t.createWebhooks(newWebhook("acct", "webhook"))
		for i := range n {
			t.settleEvent(newEvent("acct", numbered("event", i)), 1, driver.GiveUp)
		}
		recovery := newRecovery("acct", "webhook", "recovery", driver.Dead)
		t.createRecoveries(recovery)
		for advanced := true; advanced; {
			var err error
			advanced, err = t.store.AdvanceRecovery(t.Context(), 1)
			t.must(err)
			for _, task := range t.claim(99) {
				t.settle(settlement(task, driver.GiveUp))
			}
			if d := t.delivery("acct", numbered("event", 0)); len(d.Attempts) > 2 {
				t.Fatalf("%s recovered twice", d.EventID)
			}
		}
		t.wantDone(recovery, n)
	})

	run("does not change pending or claimed deliveries", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		for i := range 3 {
			t.settleEvent(newEvent("acct", numbered("event", i)), 1, driver.GiveUp)
		}
		recovery := newRecovery("acct", "webhook", "recovery", driver.Dead)
		t.createRecoveries(recovery)
		for i := range 2 {
			t.must(t.store.Redeliver(t.Context(), "acct", "webhook", numbered("event", i), audit.Entry{}))
		}
		tasks := t.claimAll(2)
		later := settlement(tasks[0], driver.Retry)
		later.RetryAfter = time.Hour
		t.settle(later)
		before := []driver.Delivery{t.delivery("acct", tasks[0].Event.ID), t.delivery("acct", tasks[1].Event.ID)}
		t.advance(9)
		t.wantDone(recovery, 1)
		wantSame(t, "EventDeliveries", []driver.Delivery{t.delivery("acct", tasks[0].Event.ID), t.delivery("acct", tasks[1].Event.ID)}, before)
		t.settle(settlement(tasks[1], driver.Deliver))
		wantSame(t, "Task.Event.ID", t.claimAll(1)[0].Event.ID, numbered("event", 2))
	})

	run("makes pending deliveries due now if the States include Pending, unless they are claimed", func(t *tester) {
		for i, states := range [][]driver.DeliveryState{{driver.Pending}, {driver.Dead, driver.Pending}} {
			id := numbered("acct", i)
			t.createWebhooks(newWebhook(id, id))
			for k := range 5 {
				t.enqueue(newEvent(id, numbered("event", k)), 1)
			}
			tasks := t.claimAll(5)
			for k, task := range tasks[:4] {
				end := settlement(task, []driver.Effect{driver.Retry, driver.Retry, driver.GiveUp, driver.Deliver}[k])
				end.RetryAfter = time.Hour
				t.settle(end)
			}
			t.enqueue(newEvent(id, "due"), 1)
			recovery := newRecovery(id, id, id, states...)
			t.createRecoveries(recovery)
			t.advance(1)
			t.wantDone(recovery, 1+len(states))
			attempts := map[string][]int{}
			for _, task := range t.await(2 + len(states)) {
				attempts[task.Event.ID] = []int{task.Attempt, task.Before}
			}
			want := map[string][]int{tasks[0].Event.ID: {2, 0}, tasks[1].Event.ID: {2, 0}, "due": {1, 0}}
			if len(states) == 2 {
				want[tasks[2].Event.ID] = []int{2, 1}
			}
			wantSame(t, "Attempt and Before of the tasks", attempts, want)
			t.settle(settlement(tasks[4], driver.Deliver))
		}
	})

	run("does not change deliveries without a payload", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.inEachState("acct", "webhook")
		border := t.border()
		t.settleEvent(newEvent("acct", "young"), 1, driver.Deliver)
		t.purge(driver.Purge{Payloads: border})
		recovery := newRecovery("acct", "webhook", "recovery", driver.Dead, driver.Delivered, driver.Skipped)
		t.createRecoveries(recovery)
		t.advance(9)
		t.wantDone(recovery, 1)
		wantSame(t, "Task.Event.ID", t.claimAll(1)[0].Event.ID, "young")
		wantSame(t, "State", t.delivery("acct", "skipped").State, driver.Skipped)
	})
}
