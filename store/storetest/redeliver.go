package storetest

import (
	"slices"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
)

// redeliver tests Redeliver and Task.Before.
func redeliver(run runner) {
	again := func(t *tester, eventID string) {
		t.Helper()
		t.must(t.store.Redeliver(t.Context(), "acct", "webhook", eventID, audit.Entry{}))
	}
	// wantPendingNow checks that a delivery is pending and due now, with its attempts unchanged.
	wantPendingNow := func(t *tester, before driver.Delivery) {
		t.Helper()
		got := t.delivery("acct", before.EventID)
		if off := time.Since(got.NextAttemptAt).Abs(); off > time.Minute {
			t.Errorf("NextAttemptAt of %s differs from now by %v", before.EventID, off)
		}
		before.State, before.NextAttemptAt = driver.Pending, got.NextAttemptAt
		wantSame(t, "EventDeliveries", got, before)
	}

	run("makes Delivered and Dead deliveries pending and due now, and continues their attempts", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		for _, id := range []string{"delivered", "dead"} {
			outcome := map[string]driver.Effect{"delivered": driver.Deliver, "dead": driver.GiveUp}[id]
			t.enqueue(newEvent("acct", id), 1)
			var attempts []driver.Attempt
			for number := 1; number <= 6; {
				before := number - 1
				for range 2 { // a failed attempt, then the last attempt
					task := t.await(1)[0]
					wantSame(t, "Task.Event", task.Event, newEvent("acct", id))
					wantSame(t, "Task.Attempt and Before", []int{task.Attempt, task.Before}, []int{number, before})
					end := settlement(task, driver.Retry)
					if number%2 == 0 {
						end.Effect = outcome
					}
					attempts = append(attempts, end.Attempt)
					t.settle(end)
					number++
				}
				d := t.delivery("acct", id)
				wantSame(t, "State", d.State, driver.DeliveryState(id))
				wantSame(t, "Attempts", d.Attempts, attempts)
				t.claimAll(0)
				again(t, id)
				wantPendingNow(t, d)
			}
			t.settle(settlement(t.claimAll(1)[0], driver.Deliver))
		}
	})

	run("makes Skipped deliveries pending and due now", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.setActive("acct", "webhook", false)
		t.enqueue(newEvent("acct", "event"), 0)
		t.setActive("acct", "webhook", true)
		d := t.delivery("acct", "event")
		again(t, "event")
		wantPendingNow(t, d)
		task := t.claimAll(1)[0]
		wantSame(t, "Task.Event", task.Event, newEvent("acct", "event"))
		wantSame(t, "Task.Attempt and Before", []int{task.Attempt, task.Before}, []int{1, 0})
		t.settle(settlement(task, driver.Deliver))
		d.State, d.Attempts = driver.Delivered, []driver.Attempt{attemptOf(task)}
		wantSame(t, "EventDeliveries", t.delivery("acct", "event"), d)
		t.enqueue(newEvent("acct", "event"), 0) // must return the same result as the first call
	})

	run("makes pending deliveries due now", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 3, 1)
		for i, task := range t.claimAll(3) {
			later := settlement(task, driver.Retry)
			later.RetryAfter = time.Duration(1+i) * time.Hour
			t.settle(later)
		}
		for _, i := range []int{1, 2} {
			d := t.delivery("acct", numbered("event", i))
			again(t, d.EventID)
			wantPendingNow(t, d)
			task := t.claimAll(1)[0]
			wantSame(t, "Task.Event.ID", task.Event.ID, d.EventID)
			wantSame(t, "Task.Attempt", task.Attempt, 2)
			t.settle(settlement(task, driver.Deliver))
		}
		t.claimAll(0)
	})

	run("a delivery that is already due is claimed once", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 3, 1)
		for range 3 {
			d := t.delivery("acct", numbered("event", 1))
			again(t, d.EventID)
			wantPendingNow(t, d)
		}
		for _, task := range t.claimAll(3) {
			wantSame(t, "Task.Attempt", task.Attempt, 1)
			t.settle(settlement(task, driver.Deliver))
		}
		t.claimAll(0)
	})

	run("the result of a running attempt counts", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 4, 1)
		tasks := t.claimAll(4)
		time.Sleep(3 * time.Millisecond)
		for i, task := range tasks {
			d := t.delivery("acct", task.Event.ID)
			again(t, task.Event.ID)
			got := t.delivery("acct", task.Event.ID)
			d.NextAttemptAt = got.NextAttemptAt // a store may set this to now
			wantSame(t, "EventDeliveries", got, d)
			t.claimAll(0)
			end := settlement(task, []driver.Effect{Postpone, driver.Retry, driver.Deliver, driver.GiveUp}[i])
			if end.Effect == driver.Retry {
				end.RetryAfter = time.Hour
			}
			t.settle(end)
			if end.Effect == Postpone {
				released := t.claimAll(1)[0]
				wantSame(t, "Task.Attempt and Before", []int{released.Attempt, released.Before}, []int{1, 0})
			}
			t.claimAll(0)
		}
	})

	run("Before does not change while the delivery is pending", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.settleEvent(newEvent("acct", "event"), 1, driver.Deliver)
		again(t, "event")
		for i, outcome := range []driver.Effect{Postpone, driver.Retry, driver.GiveUp} {
			task := t.await(1)[0]
			wantSame(t, "Task.Attempt and Before", []int{task.Attempt, task.Before}, []int{2 + i/2, 1})
			t.settle(settlement(task, outcome))
		}
		again(t, "event")
		task := t.claimAll(1)[0]
		wantSame(t, "Task.Attempt and Before", []int{task.Attempt, task.Before}, []int{4, 3})
	})

	run("a delivery to an inactive webhook waits until it is active", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.inEachState("acct", "webhook")
		t.setActive("acct", "webhook", false)
		for _, id := range []string{"delivered", "dead", "skipped", "pending"} {
			d := t.delivery("acct", id)
			again(t, id)
			wantPendingNow(t, d)
		}
		t.claimAll(0)
		t.setActive("acct", "webhook", true)
		t.claimAll(4)
	})

	run("also if the webhook was never active", func(t *tester) {
		w := newWebhook("acct", "webhook")
		w.Active = false
		t.createWebhooks(w)
		t.enqueue(newEvent("acct", "event"), 0)
		again(t, "event")
		t.claimAll(0)
		t.setActive("acct", "webhook", true)
		t.claimAll(1)
	})

	run("affects only one webhook of an event", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "webhook"), newWebhook("acct", "z"))
		t.settleEvent(newEvent("acct", "event"), 3, driver.Deliver)
		again(t, "event")
		wantSame(t, "Task.Webhook.ID", t.claimAll(1)[0].Webhook.ID, "webhook")
		for _, d := range t.deliveries("acct", "event") {
			wantSame(t, "delivery to "+d.WebhookID+" is pending", d.State == driver.Pending, d.WebhookID == "webhook")
		}
	})

	run("sends to the current webhook", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.settleEvent(newEvent("acct", "event"), 1, driver.Deliver)
		changed := t.updateWebhook("acct", "webhook", func(w *driver.Webhook) {
			w.URL, w.Events = "changed", []driver.EventType{otherType}
		})
		again(t, "event")
		wantSame(t, "Task.Webhook", *t.claimAll(1)[0].Webhook, changed)
	})

	run("returns ErrNotFound if the delivery or its webhook does not exist", func(t *tester) {
		silent := newWebhook("acct", "silent")
		silent.Events = []driver.EventType{otherType}
		t.createWebhooks(newWebhook("acct", "webhook"), newWebhook("acct", "deleted"), silent, newWebhook("other", "foreign"))
		t.settleEvent(newEvent("acct", "event"), 2, driver.Deliver)
		t.settleEvent(newEvent("other", "others"), 1, driver.Deliver)
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "deleted", nil, audit.Entry{}))
		t.createWebhooks(newWebhook("acct", "late"))
		for _, ref := range [][3]string{
			{"acct", "webhook", "unknown"}, {"acct", "unknown", "event"}, {"acct", "deleted", "event"}, {"acct", "silent", "event"},
			{"acct", "late", "event"}, {"acct", "webhook", "others"}, {"acct", "foreign", "others"}, {"acct", "foreign", "event"},
			{"other", "webhook", "event"}, {"other", "foreign", "event"}, {"nobody", "webhook", "event"}, {"acct", "event", "webhook"},
		} {
			t.wantError("Redeliver", t.store.Redeliver(t.Context(), ref[0], ref[1], ref[2], audit.Entry{}), apierr.ErrNotFound)
		}
		t.claimAll(0)
	})

	run("a delivery redelivered concurrently is claimed once", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		for round := range 10 {
			id := numbered("event", round)
			t.settleEvent(newEvent("acct", id), 1, driver.GiveUp)
			claimed := make([][]Task, 8)
			inParallel(len(claimed), func(i int) {
				t.wantError("Redeliver", t.store.Redeliver(t.Context(), "acct", "webhook", id, audit.Entry{}), nil)
				var err error
				claimed[i], err = t.worker().Claim(t.Context(), 9)
				t.wantError("Claim", err, nil)
			})
			tasks := append(slices.Concat(claimed...), t.claim(9)...)
			wantSame(t, "number of tasks", len(tasks), 1)
			t.settle(settlement(tasks[0], driver.Deliver))
			wantSame(t, "number of attempts", len(t.delivery("acct", id).Attempts), 2)
		}
	})
}
