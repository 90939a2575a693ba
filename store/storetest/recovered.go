package storetest

import (
	"fmt"
	"time"

	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/webhooks"
)

// receiverRecovers tests what a store makes due when the receiver of a webhook recovers.
func receiverRecovers(run runner) {
	all := webhooks.Claim{Limit: 99, Lease: longLease}

	// fails settles tasks as failed, to be retried in an hour, the last of them with a rest.
	fails := func(t *tester, tasks []webhooks.Task, rest time.Duration, asked bool) {
		t.Helper()
		for i, task := range tasks {
			end := settlement(task, webhooks.Retry)
			end.RetryAfter, end.Asked = time.Hour, asked
			if i == len(tasks)-1 {
				end.Rest = rest
			}
			t.settle(end)
		}
	}
	wantNone := func(t *tester) {
		t.Helper()
		wantSame(t, "number of tasks", t.claimCounts(all), map[string]int{})
	}

	for _, rest := range []time.Duration{time.Hour, time.Millisecond} {
		run(fmt.Sprintf("all that is pending is due, after a rest of %v", rest), func(t *tester) {
			t.createWebhooks(newWebhook("acct", "webhook"), newWebhook("other", "other"))
			t.enqueueMany("acct", 4, 1)
			t.enqueueMany("other", 1, 1)
			tasks := t.await(5, all)
			fails(t, tasksOf(tasks, "other"), 0, false)
			tasks = tasksOf(tasks, "webhook")
			fails(t, tasks[:3], rest, false)
			time.Sleep(20 * time.Millisecond)
			wantNone(t)
			t.settle(settlement(tasks[3], webhooks.Deliver))
			for _, task := range t.await(3, all) {
				wantSame(t, "Task.Webhook.ID, Attempt and Before", []any{task.Webhook.ID, task.Attempt, task.Before}, []any{"webhook", 2, 0})
			}
		})
	}

	run("nothing is after a failing that was short and without a rest", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 3, 1)
		tasks := t.await(3, all)
		fails(t, tasks[:2], 0, false)
		t.settle(settlement(tasks[2], webhooks.Deliver))
		wantNone(t)
	})

	run("a wait that the receiver asked for goes on", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 3, 1)
		tasks := t.await(3, all)
		fails(t, tasks[:1], 0, true)
		fails(t, tasks[1:2], time.Hour, false)
		t.settle(settlement(tasks[2], webhooks.Deliver))
		wantSame(t, "Task.Event.ID", t.await(1, all)[0].Event.ID, tasks[1].Event.ID)
		wantNone(t)
	})

	run("what fails again keeps its next wait, and only that", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 1, 1)
		poison := t.await(1, all)
		for round := range 4 {
			fails(t, poison, time.Millisecond, false)
			t.enqueue(newEvent("acct", numbered("fine", round)), 1)
			t.settle(settlement(t.await(1, all)[0], webhooks.Deliver))
			if round%2 == 1 {
				wantNone(t)
				t.must(t.store.Redeliver(t.Context(), "acct", "webhook", poison[0].Event.ID, notices.Notice{}))
			}
			poison = t.await(1, all)
		}
	})

	run("an update that ends the failing makes it due, too", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 2, 1)
		tasks := t.await(2, all)
		t.settle(settlement(tasks[0], webhooks.Deliver))
		fails(t, tasks[1:], time.Hour, false)
		wantNone(t)
		t.updateWebhook("acct", "webhook", func(w *webhooks.Webhook) { w.EndFailing() })
		t.await(1, all)
	})
}

// tasksOf returns the tasks for a webhook.
func tasksOf(tasks []webhooks.Task, webhookID string) (of []webhooks.Task) {
	for _, task := range tasks {
		if task.Webhook.ID == webhookID {
			of = append(of, task)
		}
	}
	return of
}
