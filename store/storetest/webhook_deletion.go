package storetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/driver"
)

func deleteWebhook(run runner) {
	run("removes a webhook and its pending deliveries", func(t *tester) {
		w, other := newWebhook("acct", "webhook"), newWebhook("acct", "other")
		t.createWebhooks(w, other)
		t.enqueueMany("acct", 3, 2)
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "webhook", nil, audit.Entry{}))
		_, err := t.store.WebhookByID(t.Context(), "acct", "webhook")
		t.wantError("WebhookByID", err, apierr.ErrNotFound)
		list, err := t.store.ListWebhooks(t.Context(), "acct", driver.ListQuery{Limit: 9})
		t.must(err)
		wantSame(t, "ListWebhooks", list, []driver.Webhook{other})
		for i, task := range t.claimAll(3) {
			wantSame(t, "Task.Webhook", *task.Webhook, other)
			wantSame(t, "WebhookID", t.delivery("acct", numbered("event", i)).WebhookID, "other")
		}
		t.enqueue(newEvent("acct", "later"), 1)
	})

	run("also deliveries that are due later, claimed or recovered", func(t *tester) {
		t.dead("acct", "webhook", 6)
		t.createRecoveries(newRecovery("acct", "webhook", "recovery", driver.Dead))
		t.advance(9)
		t.createWebhooks(newWebhook("other", "a"), newWebhook("other", "b"))
		for i := range 6 {
			t.enqueue(newEvent("acct", numbered("live", i)), 1)
			t.enqueue(newEvent("other", numbered("event", i)), 2)
		}
		for i, task := range t.claimAll(24) {
			if later := settlement(task, driver.Retry); i%4 > 0 || task.Webhook.ID != "webhook" {
				later.RetryAfter = time.Duration(i) * time.Minute
				t.settle(later)
			}
		}
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "webhook", nil, audit.Entry{}))
		t.must(t.store.DeleteWebhook(t.Context(), "other", "a", nil, audit.Entry{}))
		t.setActive("other", "b", false)
		t.setActive("other", "b", true)
		backlog := t.backlog("")
		wantSame(t, "Pending", backlog.Pending, 6)
		for i := range 6 {
			t.must(t.store.Redeliver(t.Context(), "other", "b", numbered("event", i), audit.Entry{}))
		}
		t.claimAll(6)
	})

	run("ErrNotFound", func(t *tester) {
		t.wantError("DeleteWebhook", t.store.DeleteWebhook(t.Context(), "acct", "webhook", nil, audit.Entry{}), apierr.ErrNotFound)
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "webhook", nil, audit.Entry{}))
		t.wantError("DeleteWebhook", t.store.DeleteWebhook(t.Context(), "acct", "webhook", nil, audit.Entry{}), apierr.ErrNotFound)
	})

	run("passes the webhook to check, and does nothing if that returns an error", func(t *tester) {
		w := newWebhook("acct", "webhook")
		t.createWebhooks(w)
		t.enqueue(newEvent("acct", "event"), 1)
		var given []driver.Webhook
		remove := func(err error) error {
			return t.store.DeleteWebhook(t.Context(), "acct", "webhook", func(w driver.Webhook) error {
				given = append(given, w)
				return err
			}, audit.Entry{})
		}
		t.wantError("DeleteWebhook", remove(fmt.Errorf("wrapped: %w", errChange)), errChange)
		wantSame(t, "WebhookByID", t.webhook("acct", "webhook"), w)
		t.settle(settlement(t.claimAll(1)[0], Postpone))
		t.must(remove(nil))
		calls := len(given) // check may run more than once
		for _, g := range given {
			wantSame(t, "webhook passed to check", g, w)
		}
		t.wantError("DeleteWebhook", remove(errChange), apierr.ErrNotFound)
		wantSame(t, "calls of check", len(given), calls)
		t.claimAll(0)
	})

	run("no other change happens between check and removal", func(t *tester) {
		for round := range 20 {
			id := numbered("webhook", round)
			t.createWebhooks(newWebhook("acct", id))
			var checked, updated driver.Webhook
			var refused error
			inParallel(2, func(i int) {
				if i == 0 {
					updated, refused = t.store.UpdateWebhook(t.Context(), "acct", id, func(w *driver.Webhook, _ *audit.Entry) error {
						w.Threshold = 1
						return nil
					})
					return
				}
				err := t.store.DeleteWebhook(t.Context(), "acct", id, func(w driver.Webhook) error {
					time.Sleep(time.Microsecond) // gives the other goroutine time to run
					checked = w
					return nil
				}, audit.Entry{})
				t.wantError("DeleteWebhook", err, nil)
			})
			if refused != nil {
				t.wantError("UpdateWebhook", refused, apierr.ErrNotFound)
				wantSame(t, "webhook passed to check", checked.Threshold, newWebhook("acct", id).Threshold)
			} else {
				wantSame(t, "webhook passed to check", checked, updated)
			}
			_, err := t.store.WebhookByID(t.Context(), "acct", id)
			t.wantError("WebhookByID", err, apierr.ErrNotFound)
		}
	})

	run("settlements of earlier claims are stale", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 3, 1)
		tasks := t.claimAll(3)
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "webhook", nil, audit.Entry{}))
		for i, outcome := range []driver.Effect{driver.Retry, driver.Deliver, driver.GiveUp} {
			end := settlement(tasks[i], outcome)
			end.Deactivate = driver.OffGone
			t.wantStale(end)
			wantSame(t, "EventDeliveries", t.deliveries("acct", tasks[i].Event.ID), nil)
		}
		t.claimAll(0)
	})

	run("settled deliveries remain", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 3, 1)
		tasks := t.claimAll(3)
		t.settle(settlement(tasks[0], driver.Deliver), settlement(tasks[1], driver.GiveUp), settlement(tasks[2], driver.Retry))
		delivered, dead := t.deliveries("acct", tasks[0].Event.ID), t.deliveries("acct", tasks[1].Event.ID)
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "webhook", nil, audit.Entry{}))
		wantSame(t, "EventDeliveries", t.deliveries("acct", tasks[0].Event.ID), delivered)
		wantSame(t, "EventDeliveries", t.deliveries("acct", tasks[1].Event.ID), dead)
		wantSame(t, "EventDeliveries", t.deliveries("acct", tasks[2].Event.ID), nil)
	})

	run("a new webhook with the same ID gets no old deliveries, in any account", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 3, 1)
		settled, leased := t.claim(1)[0], t.claim(1)[0]
		t.settle(settlement(settled, driver.Deliver))
		want := t.deliveries("acct", settled.Event.ID)
		for _, account := range []string{"acct", "other"} {
			t.must(t.store.DeleteWebhook(t.Context(), "acct", "webhook", nil, audit.Entry{}))
			w := newWebhook(account, "webhook")
			t.createWebhooks(w)
			t.claimAll(0)
			t.wantStale(settlement(leased, driver.Deliver))
			t.enqueue(newEvent(account, "later"), 1)
			task := t.claimAll(1)[0]
			wantSame(t, "Task.Event", task.Event, newEvent(account, "later"))
			wantSame(t, "Task.Webhook", *task.Webhook, w)
		}
		t.enqueue(newEvent("other", settled.Event.ID), 1)
		t.settle(settlement(t.claimAll(1)[0], driver.GiveUp))
		t.wantError("Redeliver", t.store.Redeliver(t.Context(), "acct", "webhook", settled.Event.ID, audit.Entry{}), apierr.ErrNotFound)
		_, err := t.store.ListDeliveries(t.Context(), "acct", "webhook", driver.DeliveryQuery{Limit: 9})
		t.wantError("ListDeliveries", err, apierr.ErrNotFound)
		wantSame(t, "EventDeliveries", t.deliveries("acct", settled.Event.ID), want)
	})

	run("deliveries to a new webhook with the same ID use its URL and secret", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.settleEvent(newEvent("acct", "redelivered"), 1, driver.Deliver)
		t.settleEvent(newEvent("acct", "recovered"), 1, driver.GiveUp)
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "webhook", nil, audit.Entry{}))
		again := newWebhook("acct", "webhook")
		again.URL, again.Secret = "https://again.example.com/", signing.NewSecret()
		t.createWebhooks(again)
		if err := t.store.Redeliver(t.Context(), "acct", "webhook", "redelivered", audit.Entry{}); !errors.Is(err, apierr.ErrNotFound) {
			t.must(err) // a store may still know data of the former webhook
		}
		t.createRecoveries(newRecovery("acct", "webhook", "recovery", driver.Dead))
		t.advance(9)
		t.enqueue(newEvent("acct", "published"), 1)
		var ends []Settlement
		for _, task := range t.claim(9) {
			wantSame(t, "Task.Webhook", *task.Webhook, again)
			failed := settlement(task, driver.GiveUp)
			failed.Deactivate = driver.OffGone
			ends = append(ends, failed)
		}
		t.settle(ends...)
		wantSame(t, "Active", t.webhook("acct", "webhook").Active, false)
	})

	run("a long backlog disappears for all methods in one step", func(t *tester) {
		const n = 500
		w, other := newWebhook("acct", "webhook"), newWebhook("acct", "other")
		t.createWebhooks(w, other)
		inParallel(50, func(i int) {
			for j := i; j < n; j += 50 {
				_, err := t.store.Enqueue(t.Context(), newEvent("acct", numbered("event", j)))
				t.wantError("Enqueue", err, nil)
			}
		})
		var later []Settlement
		for _, task := range t.claim(n) {
			retry := settlement(task, driver.Retry)
			retry.RetryAfter = time.Hour
			later = append(later, retry)
		}
		t.settle(later...)
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "webhook", nil, audit.Entry{}))
		border := t.border()
		check := func() {
			t.Helper()
			backlog := t.backlog("")
			wantSame(t, "Pending", backlog.Pending, n)
			for i := 0; i < n; i += 49 {
				id := numbered("event", i)
				wantSame(t, "EventDeliveries", t.delivery("acct", id).WebhookID, "other")
				t.wantError("Redeliver", t.store.Redeliver(t.Context(), "acct", "webhook", id, audit.Entry{}), apierr.ErrNotFound)
			}
		}
		check()
		for range 3 { // the store may remove leftover rows in these calls
			_, err := t.store.Purge(t.Context(), driver.Purge{Limit: 50})
			t.must(err)
			check()
		}
		t.createWebhooks(w)
		check()
		wantSame(t, "ListDeliveries", t.list("acct", "webhook", driver.DeliveryQuery{}), nil)
		t.enqueue(newEvent("acct", "later"), 2)
		t.purge(driver.Purge{Payloads: border})
		wantSame(t, "state of a delivery to the other webhook", t.delivery("acct", numbered("event", 0)).State, driver.Dead)
		for _, task := range t.claimAll(2) {
			wantSame(t, "Task.Event", task.Event, newEvent("acct", "later"))
		}
	})
}
