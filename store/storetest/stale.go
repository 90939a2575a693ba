package storetest

import (
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

// staleSettlements tests SettleDeliveries with claims that have ended.
func staleSettlements(run runner) {
	run("a settlement whose token is not current does nothing", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 2, 1)
		tasks := t.claimAll(2)
		unknown := tasks[1]
		unknown.Token = max(tasks[0].Token, tasks[1].Token) + 1<<20
		t.settle(settlement(tasks[0], webhooks.Deliver))
		want := [][]webhooks.Delivery{t.deliveries("acct", tasks[0].Event.ID), t.deliveries("acct", tasks[1].Event.ID)}
		for _, task := range []webhooks.Task{tasks[0], unknown} {
			for _, outcome := range []webhooks.Outcome{webhooks.Release, webhooks.Retry, webhooks.Deliver, webhooks.GiveUp} {
				end := settlement(task, outcome)
				end.Deactivate = webhooks.OffGone
				t.wantStale(end)
			}
		}
		wantSame(t, "EventDeliveries", [][]webhooks.Delivery{t.deliveries("acct", tasks[0].Event.ID), t.deliveries("acct", tasks[1].Event.ID)}, want)
		wantSame(t, "Active", t.webhook("acct", "webhook").Active, true)
		t.claimAll(0)
		t.settle(settlement(tasks[1], webhooks.Deliver))
	})

	run("a released delivery is due when that says", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 2, 1)
		tasks := t.claimAll(2)
		later := settlement(tasks[0], webhooks.Release)
		later.RetryAfter = time.Hour
		soon := settlement(tasks[1], webhooks.Release)
		soon.RetryAfter = time.Millisecond
		t.settle(later, soon)
		again := t.await(1, webhooks.Claim{Limit: 9, Lease: longLease})[0]
		wantSame(t, "Task.Event.ID and Attempt", []any{again.Event.ID, again.Attempt}, []any{tasks[1].Event.ID, 1})
		t.claimAll(0)
	})

	run("each outcome ends the claim", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		for i, outcome := range []webhooks.Outcome{webhooks.Release, webhooks.Retry, webhooks.Deliver, webhooks.GiveUp} {
			t.enqueue(newEvent("acct", numbered("event", i)), 1)
			task := t.claimAll(1)[0]
			end := settlement(task, outcome)
			if outcome != webhooks.Release {
				end.RetryAfter = time.Hour
			}
			t.settle(end)
			t.wantStale(settlement(task, webhooks.Deliver))
			if outcome == webhooks.Release {
				t.settle(settlement(t.claimAll(1)[0], webhooks.Deliver))
			}
		}
	})

	run("the stale are told in ascending order, the others are done", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 6, 1)
		tasks := t.claimAll(6)
		for _, i := range []int{4, 1, 3} {
			t.settle(settlement(tasks[i], webhooks.GiveUp))
		}
		var settlements []webhooks.Settlement
		for _, task := range tasks {
			settlements = append(settlements, settlement(task, webhooks.Deliver))
		}
		stale, err := t.store.SettleDeliveries(t.Context(), settlements)
		t.must(err)
		wantSame(t, "stale", stale, []int{1, 3, 4})
		for i, task := range tasks {
			want := webhooks.Delivered
			if i == 1 || i == 3 || i == 4 {
				want = webhooks.Dead
			}
			wantSame(t, "State", t.delivery("acct", task.Event.ID).State, want)
			wantSame(t, "number of attempts", len(t.delivery("acct", task.Event.ID).Attempts), 1)
		}
	})

	run("of two settlements of a claim the second is stale", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 3, 1)
		tasks := t.claimAll(3)
		later := settlement(tasks[2], webhooks.Retry)
		later.RetryAfter = time.Hour
		stale, err := t.store.SettleDeliveries(t.Context(), []webhooks.Settlement{
			settlement(tasks[0], webhooks.Deliver), settlement(tasks[0], webhooks.GiveUp),
			settlement(tasks[1], webhooks.Release), settlement(tasks[1], webhooks.Deliver),
			later, settlement(tasks[2], webhooks.Deliver),
		})
		t.must(err)
		wantSame(t, "stale", stale, []int{1, 3, 5})
		wantSame(t, "State", t.delivery("acct", tasks[0].Event.ID).State, webhooks.Delivered)
		wantSame(t, "number of attempts", len(t.delivery("acct", tasks[0].Event.ID).Attempts), 1)
		wantSame(t, "State", t.delivery("acct", tasks[2].Event.ID).State, webhooks.Pending)
		wantSame(t, "Task.Event", t.claimAll(1)[0].Event, tasks[1].Event)
	})
}
