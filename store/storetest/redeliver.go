package storetest

import (
	"slices"
	"time"

	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/webhooks"
)

// redeliver tests Redeliver, and Task.Before with it.
func redeliver(run runner) {
	again := func(t *tester, eventID string) {
		t.Helper()
		t.must(t.store.Redeliver(t.Context(), "acct", "webhook", eventID, notices.Notice{}))
	}
	// wantOwed checks that a delivery is pending, due now, and has its attempts.
	wantOwed := func(t *tester, before webhooks.Delivery) {
		t.Helper()
		got := t.delivery("acct", before.EventID)
		if off := time.Since(got.NextAttemptAt).Abs(); off > time.Minute {
			t.Errorf("NextAttemptAt of %s is %v away from now", before.EventID, off)
		}
		before.State, before.NextAttemptAt = webhooks.Pending, got.NextAttemptAt
		wantSame(t, "EventDeliveries", got, before)
	}

	run("what was Delivered or Dead is owed again, due now, and its attempts go on", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		for _, id := range []string{"delivered", "dead"} {
			outcome := map[string]webhooks.Outcome{"delivered": webhooks.Deliver, "dead": webhooks.GiveUp}[id]
			t.enqueue(newEvent("acct", id), 1)
			var attempts []webhooks.Attempt
			for number := 1; number <= 6; {
				before := number - 1
				for range 2 { // a failure, and the end
					task := t.await(1)[0]
					wantSame(t, "Task.Event", task.Event, newEvent("acct", id))
					wantSame(t, "Task.Attempt and Before", []int{task.Attempt, task.Before}, []int{number, before})
					end := settlement(task, webhooks.Retry)
					if number%2 == 0 {
						end.Outcome = outcome
					}
					attempts = append(attempts, end.Attempt)
					t.settle(end)
					number++
				}
				d := t.delivery("acct", id)
				wantSame(t, "State", d.State, webhooks.DeliveryState(id))
				wantSame(t, "Attempts", d.Attempts, attempts)
				t.claimAll(0)
				again(t, id)
				wantOwed(t, d)
			}
			t.settle(settlement(t.claimAll(1)[0], webhooks.Deliver))
		}
	})

	run("what was Skipped is owed, due now", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.setActive("acct", "webhook", false)
		t.enqueue(newEvent("acct", "event"), 0)
		t.setActive("acct", "webhook", true)
		d := t.delivery("acct", "event")
		again(t, "event")
		wantOwed(t, d)
		task := t.claimAll(1)[0]
		wantSame(t, "Task.Event", task.Event, newEvent("acct", "event"))
		wantSame(t, "Task.Attempt and Before", []int{task.Attempt, task.Before}, []int{1, 0})
		t.settle(settlement(task, webhooks.Deliver))
		d.State, d.Attempts = webhooks.Delivered, []webhooks.Attempt{attemptOf(task)}
		wantSame(t, "EventDeliveries", t.delivery("acct", "event"), d)
		t.enqueue(newEvent("acct", "event"), 0) // as the first time
	})

	run("what is pending, due later, is due now", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 3, 1)
		for i, task := range t.claimAll(3) {
			later := settlement(task, webhooks.Retry)
			later.RetryAfter = time.Duration(1+i) * time.Hour
			t.settle(later)
		}
		for _, i := range []int{1, 2} {
			d := t.delivery("acct", numbered("event", i))
			again(t, d.EventID)
			wantOwed(t, d)
			task := t.claimAll(1)[0]
			wantSame(t, "Task.Event.ID", task.Event.ID, d.EventID)
			wantSame(t, "Task.Attempt", task.Attempt, 2)
			t.settle(settlement(task, webhooks.Deliver))
		}
		t.claimAll(0)
	})

	run("what is due already is claimed once", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 3, 1)
		for range 3 {
			d := t.delivery("acct", numbered("event", 1))
			again(t, d.EventID)
			wantOwed(t, d)
		}
		for _, task := range t.claimAll(3) {
			wantSame(t, "Task.Attempt", task.Attempt, 1)
			t.settle(settlement(task, webhooks.Deliver))
		}
		t.claimAll(0)
	})

	run("if an attempt is under way its result counts", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 4, 1)
		tasks := t.claimAll(4)
		time.Sleep(3 * time.Millisecond)
		for i, task := range tasks {
			d := t.delivery("acct", task.Event.ID)
			again(t, task.Event.ID)
			got := t.delivery("acct", task.Event.ID)
			d.NextAttemptAt = got.NextAttemptAt // now, if the store knows of no leases
			wantSame(t, "EventDeliveries", got, d)
			t.claimAll(0)
			end := settlement(task, []webhooks.Outcome{Release, webhooks.Retry, webhooks.Deliver, webhooks.GiveUp}[i])
			if end.Outcome == webhooks.Retry {
				end.RetryAfter = time.Hour
			}
			t.settle(end)
			if end.Outcome == Release {
				released := t.claimAll(1)[0]
				wantSame(t, "Task.Attempt and Before", []int{released.Attempt, released.Before}, []int{1, 0})
			}
			t.claimAll(0)
		}
	})

	run("Before stays while the delivery is owed", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.settleEvent(newEvent("acct", "event"), 1, webhooks.Deliver)
		again(t, "event")
		for i, outcome := range []webhooks.Outcome{Release, webhooks.Retry, webhooks.GiveUp} {
			task := t.await(1)[0]
			wantSame(t, "Task.Attempt and Before", []int{task.Attempt, task.Before}, []int{2 + i/2, 1})
			t.settle(settlement(task, outcome))
		}
		again(t, "event")
		task := t.claimAll(1)[0]
		wantSame(t, "Task.Attempt and Before", []int{task.Attempt, task.Before}, []int{4, 3})
	})

	run("that of an inactive webhook waits until it is active", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.inEachState("acct", "webhook")
		t.setActive("acct", "webhook", false)
		for _, id := range []string{"delivered", "dead", "skipped", "pending"} {
			d := t.delivery("acct", id)
			again(t, id)
			wantOwed(t, d)
		}
		t.claimAll(0)
		t.setActive("acct", "webhook", true)
		t.claimAll(4)
	})

	run("that of a webhook which was never active waits, too", func(t *tester) {
		w := newWebhook("acct", "webhook")
		w.Active = false
		t.createWebhooks(w)
		t.enqueue(newEvent("acct", "event"), 0)
		again(t, "event")
		t.claimAll(0)
		t.setActive("acct", "webhook", true)
		t.claimAll(1)
	})

	run("of an event for several webhooks it is for one", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "webhook"), newWebhook("acct", "z"))
		t.settleEvent(newEvent("acct", "event"), 3, webhooks.Deliver)
		again(t, "event")
		wantSame(t, "Task.Webhook.ID", t.claimAll(1)[0].Webhook.ID, "webhook")
		for _, d := range t.deliveries("acct", "event") {
			wantSame(t, "whether that of "+d.WebhookID+" is pending", d.State == webhooks.Pending, d.WebhookID == "webhook")
		}
	})

	run("it goes to the webhook as it is", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.settleEvent(newEvent("acct", "event"), 1, webhooks.Deliver)
		changed := t.updateWebhook("acct", "webhook", func(w *webhooks.Webhook) {
			w.URL, w.Events = "changed", []webhooks.EventType{webhooks.TypeFilesExpiring}
		})
		again(t, "event")
		wantSame(t, "Task.Webhook", *t.claimAll(1)[0].Webhook, changed)
	})

	run("ErrNotFound if there is no such delivery, or no webhook for it any more", func(t *tester) {
		silent := newWebhook("acct", "silent")
		silent.Events = []webhooks.EventType{webhooks.TypeFilesExpiring}
		t.createWebhooks(newWebhook("acct", "webhook"), newWebhook("acct", "deleted"), silent, newWebhook("other", "foreign"))
		t.settleEvent(newEvent("acct", "event"), 2, webhooks.Deliver)
		t.settleEvent(newEvent("other", "theirs"), 1, webhooks.Deliver)
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "deleted", nil, notices.Notice{}))
		t.createWebhooks(newWebhook("acct", "late"))
		for _, ref := range [][3]string{
			{"acct", "webhook", "unknown"}, {"acct", "unknown", "event"}, {"acct", "deleted", "event"}, {"acct", "silent", "event"},
			{"acct", "late", "event"}, {"acct", "webhook", "theirs"}, {"acct", "foreign", "theirs"}, {"acct", "foreign", "event"},
			{"other", "webhook", "event"}, {"other", "foreign", "event"}, {"nobody", "webhook", "event"}, {"acct", "event", "webhook"},
		} {
			t.wantError("Redeliver", t.store.Redeliver(t.Context(), ref[0], ref[1], ref[2], notices.Notice{}), webhooks.ErrNotFound)
		}
		t.claimAll(0)
	})

	run("of many who redeliver one at once, it is claimed once", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		for round := range 10 {
			id := numbered("event", round)
			t.settleEvent(newEvent("acct", id), 1, webhooks.GiveUp)
			claimed := make([][]Task, 8)
			inParallel(len(claimed), func(i int) {
				t.wantError("Redeliver", t.store.Redeliver(t.Context(), "acct", "webhook", id, notices.Notice{}), nil)
				var err error
				claimed[i], err = t.worker().Claim(t.Context(), 9)
				t.wantError("Claim", err, nil)
			})
			tasks := append(slices.Concat(claimed...), t.claim(9)...)
			wantSame(t, "number of tasks", len(tasks), 1)
			t.settle(settlement(tasks[0], webhooks.Deliver))
			wantSame(t, "number of attempts", len(t.delivery("acct", id).Attempts), 2)
		}
	})
}
