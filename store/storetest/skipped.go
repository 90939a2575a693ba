package storetest

import (
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
)

// skipped tests Enqueue with inactive webhooks.
func skipped(run runner) {
	run("stores a Skipped delivery for each inactive subscribed webhook", func(t *tester) {
		active, off, silent := newWebhook("acct", "b"), newWebhook("acct", "a"), newWebhook("acct", "c")
		off.Active, silent.Active = false, false
		silent.Events = []driver.EventType{otherType}
		foreign := newWebhook("other", "d")
		foreign.Active = false
		t.createWebhooks(active, off, silent, foreign)
		t.enqueue(newEvent("acct", "event"), 1)
		list := t.deliveries("acct", "event")
		if len(list) != 2 {
			t.Fatalf("EventDeliveries has %d deliveries, want 2", len(list))
		}
		wantSame(t, "EventDeliveries", list, []driver.Delivery{{
			EventID: "event", WebhookID: "a", Type: eventType, Resource: "bucket-1", PublishedAt: list[0].PublishedAt, State: driver.Skipped,
		}, {
			EventID: "event", WebhookID: "b", Type: eventType, Resource: "bucket-1", PublishedAt: list[0].PublishedAt,
			State: driver.Pending, NextAttemptAt: list[1].NextAttemptAt,
		}})
		wantSame(t, "Task.Webhook.ID", t.claimAll(1)[0].Webhook.ID, "b")
	})

	run("Skipped deliveries are not claimed, even if the webhook changes", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueue(newEvent("acct", "pending"), 1)
		t.setActive("acct", "webhook", false)
		t.enqueue(newEvent("acct", "skipped"), 0)
		t.claimAll(0)
		t.updateWebhook("acct", "webhook", func(w *driver.Webhook) { w.URL = "changed" })
		t.claimAll(0)
		t.setActive("acct", "webhook", true)
		t.enqueue(newEvent("acct", "later"), 1)
		for _, task := range t.claimAll(2) {
			if task.Event.ID == "skipped" {
				t.Error("claimed a Skipped delivery")
			}
			t.settle(settlement(task, driver.Deliver))
		}
		t.claimAll(0)
		wantSame(t, "State", t.delivery("acct", "skipped").State, driver.Skipped)
	})

	run("Skipped deliveries are not counted, and not stored twice", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"))
		t.setActive("acct", "a", false)
		t.enqueue(newEvent("acct", "event"), 1)
		t.setActive("acct", "a", true)
		first := t.deliveries("acct", "event")
		t.enqueue(newEvent("acct", "event"), 1)
		t.setActive("acct", "b", false)
		t.enqueue(newEvent("acct", "event"), 1)
		wantSame(t, "EventDeliveries", t.deliveries("acct", "event"), first)
	})

	run("a settlement that disables the webhook makes later events Skipped", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueue(newEvent("acct", "event"), 1)
		end := settlement(t.claimAll(1)[0], driver.GiveUp)
		end.Deactivate = driver.OffGone
		t.settle(end)
		t.enqueue(newEvent("acct", "skipped"), 0)
		wantSame(t, "State", t.delivery("acct", "skipped").State, driver.Skipped)
	})

	run("a Skipped delivery remains after its webhook was deleted", func(t *tester) {
		w := newWebhook("acct", "webhook")
		w.Active = false
		t.createWebhooks(w)
		t.enqueue(newEvent("acct", "event"), 0)
		before := t.delivery("acct", "event")
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "webhook", nil, audit.Entry{}))
		wantSame(t, "EventDeliveries", t.delivery("acct", "event"), before)
	})

	run("PublishedAt follows the store's clock, and never decreases", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"))
		t.setActive("acct", "b", false)
		var last time.Time
		for i := range 20 {
			id := numbered("event", i)
			t.enqueue(newEvent("acct", id), 1)
			list := t.deliveries("acct", id)
			at := list[0].PublishedAt
			wantSame(t, "PublishedAt", list[1].PublishedAt, at)
			if off := time.Since(at).Abs(); off > time.Minute {
				t.Errorf("PublishedAt differs from now by %v", off)
			}
			if at.Before(last) {
				t.Errorf("PublishedAt = %v, before an earlier event's %v", at, last)
			}
			wantSame(t, "PublishedAt in milliseconds", at.Truncate(time.Millisecond), at)
			last = at
			time.Sleep(time.Millisecond)
		}
		t.enqueue(newEvent("acct", numbered("event", 0)), 1)
		if first := t.deliveries("acct", numbered("event", 0))[0].PublishedAt; !first.Before(last) {
			t.Errorf("PublishedAt = %v after a repeated publication, want the first one", first)
		}
	})

	run("PublishedAt never decreases with concurrent publications", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		inParallel(8, func(i int) {
			var last time.Time
			for j := range 20 {
				id := numbered(numbered("event", i), j)
				_, err := t.store.Enqueue(t.Context(), newEvent("acct", id))
				list, err2 := t.store.EventDeliveries(t.Context(), "acct", id)
				if err != nil || err2 != nil || len(list) != 1 {
					t.Errorf("Enqueue: %v; EventDeliveries = %d, %v, want 1", err, len(list), err2)
					return
				}
				if list[0].PublishedAt.Before(last) {
					t.Errorf("PublishedAt = %v, before an earlier event's %v", list[0].PublishedAt, last)
				}
				last = list[0].PublishedAt
			}
		})
		list := t.list("acct", "webhook", driver.DeliveryQuery{})
		for i := 1; i < len(list); i++ {
			if list[i].PublishedAt.After(list[i-1].PublishedAt) {
				t.Errorf("PublishedAt of an earlier event = %v, of a later one = %v", list[i].PublishedAt, list[i-1].PublishedAt)
			}
		}
	})
}
