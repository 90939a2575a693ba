package storetest

import (
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
)

func eventDeliveries(run runner) {
	run("returns the deliveries of an event by ascending webhook ID", func(t *tester) {
		for _, id := range []string{"c", "a", "e", "b", "d", "B"} {
			t.createWebhooks(newWebhook("acct", id))
		}
		t.enqueue(newEvent("acct", "event"), 6)
		t.enqueue(newEvent("acct", "other"), 6)
		var settlements []Settlement
		for _, task := range t.claimAll(12) {
			outcome := map[string]driver.Effect{"a": driver.Deliver, "b": driver.GiveUp, "c": driver.Retry, "d": Postpone}
			if to, ok := outcome[task.Webhook.ID]; ok && task.Event.ID == "event" {
				settlements = append(settlements, settlement(task, to))
			}
		}
		t.settle(settlements...)
		type short struct {
			WebhookID string
			State     driver.DeliveryState
			Attempts  int
			Due       bool
		}
		var got []short
		for _, d := range t.deliveries("acct", "event") {
			got = append(got, short{d.WebhookID, d.State, len(d.Attempts), !d.NextAttemptAt.IsZero()})
		}
		wantSame(t, "EventDeliveries", got, []short{
			{"B", driver.Pending, 0, true}, // claimed
			{"a", driver.Delivered, 1, false},
			{"b", driver.Dead, 1, false},
			{"c", driver.Pending, 1, true},
			{"d", driver.Pending, 0, true},
			{"e", driver.Pending, 0, true}, // claimed
		})
	})

	run("returns ErrNotFound if the account has no such event", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueue(newEvent("acct", "event"), 1)
		for _, ref := range [][2]string{{"acct", "other"}, {"other", "event"}, {"acct", "even"}, {"acct", "event0"}, {"acc", "tevent"}} {
			_, err := t.store.EventDeliveries(t.Context(), ref[0], ref[1])
			t.wantError("EventDeliveries", err, apierr.ErrNotFound)
		}
	})

	run("omits deliveries that were pending when their webhook was deleted", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"), newWebhook("acct", "c"))
		t.enqueue(newEvent("acct", "event"), 3)
		for _, task := range t.claimAll(3) {
			if task.Webhook.ID != "c" {
				t.settle(settlement(task, driver.Retry))
			}
		}
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "b", nil, audit.Entry{}))
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "c", nil, audit.Entry{})) // claimed
		wantSame(t, "WebhookID", t.delivery("acct", "event").WebhookID, "a")
	})

	run("restores their state if they had been settled before", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.settleEvent(newEvent("acct", "recovered"), 1, driver.GiveUp)
		t.createRecoveries(newRecovery("acct", "webhook", "recovery", driver.Dead))
		t.advance(9)
		t.claimAll(1)
		t.inEachState("acct", "webhook")
		t.enqueue(newEvent("acct", "twice"), 1)
		t.settle(settlement(t.claimAll(1)[0], driver.Deliver))
		want := map[string][]driver.Delivery{}
		for _, d := range t.list("acct", "webhook", driver.DeliveryQuery{}) {
			want[d.EventID] = []driver.Delivery{d}
		}
		want["recovered"][0].State, want["recovered"][0].NextAttemptAt = driver.Dead, time.Time{}
		want["pending"], want["skipped"] = nil, nil

		for id := range want {
			t.must(t.store.Redeliver(t.Context(), "acct", "webhook", id, audit.Entry{}))
		}
		for _, task := range t.claimAll(5) {
			switch task.Event.ID {
			case "delivered": // stays claimed
			case "twice": // redelivered once more
				t.settle(settlement(task, driver.GiveUp))
				want["twice"] = t.deliveries("acct", "twice")
				t.must(t.store.Redeliver(t.Context(), "acct", "webhook", "twice", audit.Entry{}))
			case "dead": // fails again
				t.settle(settlement(task, driver.Retry))
				want["dead"][0].Attempts = append(want["dead"][0].Attempts, attemptOf(task))
			default:
				t.settle(settlement(task, Postpone))
			}
		}
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "webhook", nil, audit.Entry{}))
		for id, list := range want {
			wantSame(t, "EventDeliveries of "+id, t.deliveries("acct", id), list)
		}
	})
}
