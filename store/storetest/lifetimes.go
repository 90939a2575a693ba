package storetest

import (
	"fmt"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
)

// lifetimes tests how Purge treats attempts, event IDs and recoveries, separately and together.
func lifetimes(run runner) {
	run("attempts: purged deliveries are no longer listed", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"), newWebhook("acct", "deleted"))
		t.settleEvent(newEvent("acct", "event"), 2, driver.Deliver)
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "deleted", nil, audit.Entry{}))
		t.inEachState("acct", "webhook")
		border := t.border()
		t.settleEvent(newEvent("acct", "young"), 1, driver.GiveUp)
		young := t.delivery("acct", "young")
		t.purge(driver.Purge{Payloads: border, Attempts: border})
		wantSame(t, "ListDeliveries", t.list("acct", "webhook", driver.DeliveryQuery{}), []driver.Delivery{young})
		for id, first := range map[string]int{"event": 2, "delivered": 1, "dead": 1, "skipped": 0, "pending": 1} {
			wantSame(t, "EventDeliveries of "+id, t.deliveries("acct", id), nil)
			t.wantError("Redeliver", t.store.Redeliver(t.Context(), "acct", "webhook", id, audit.Entry{}), apierr.ErrNotFound)
			t.enqueue(newEvent("acct", id), first) // the store still knows the ID
			wantSame(t, "EventDeliveries of "+id, t.deliveries("acct", id), nil)
		}
		t.claimAll(0)
		wantSame(t, "EventDeliveries", t.delivery("acct", "young"), young)
		t.must(t.store.Redeliver(t.Context(), "acct", "webhook", "young", audit.Entry{}))
		wantSame(t, "Task.Event", t.claimAll(1)[0].Event, newEvent("acct", "young"))
	})

	run("event IDs: a purged ID can be published again as a new event", func(t *tester) {
		t.enqueue(newEvent("acct", "unheard"), 0)
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.settleEvent(newEvent("acct", "event"), 1, driver.Deliver)
		old := t.list("acct", "webhook", driver.DeliveryQuery{})
		border := t.border()
		t.settleEvent(newEvent("acct", "young"), 1, driver.Deliver)
		for id, first := range map[string]int{"unheard": 0, "event": 1, "young": 1} {
			t.enqueue(newEvent("acct", id), first)
		}
		t.purge(driver.Purge{Payloads: border}) // does not purge IDs
		for id, first := range map[string]int{"unheard": 0, "event": 1, "young": 1} {
			t.enqueue(newEvent("acct", id), first)
		}
		t.claimAll(0)
		t.purge(driver.Purge{Payloads: border, EventIDs: border})
		wantSame(t, "ListDeliveries", t.list("acct", "webhook", driver.DeliveryQuery{To: border}), old)
		t.createWebhooks(newWebhook("acct", "late"))
		changed := newEvent("acct", "event")
		changed.Body = []byte(`"changed"`)
		t.enqueue(newEvent("acct", "young"), 1) // known already
		t.enqueue(newEvent("acct", "unheard"), 2)
		t.enqueue(changed, 2)
		t.enqueue(changed, 2)
		for _, task := range t.claimAll(4) {
			if task.Event.ID == "event" {
				wantSame(t, "Task.Event", task.Event, changed)
				wantSame(t, "Task.Attempt", task.Attempt, 1)
			}
			t.settle(settlement(task, driver.Deliver))
		}
		wantSame(t, "deliveries of the new event", len(t.deliveries("acct", "event")), 2)
		wantSame(t, "events", eventIDs(t.list("acct", "late", driver.DeliveryQuery{})), []string{"event", "unheard"})
	})

	run("removes everything in the end, in steps of any size", func(t *tester) {
		for i, limit := range []int{1, 3, 1000} {
			account := numbered("acct", i)
			t.createWebhooks(newWebhook(account, account))
			t.inEachState(account, account)
			t.enqueue(newEvent(account, "due"), 1)
			t.enqueue(newEvent(account+" unheard", "event"), 0)
			border := t.border()
			t.enqueue(newEvent(account, "young"), 1)
			young := t.delivery(account, "young")
			t.purge(driver.Purge{Payloads: border, Attempts: border, EventIDs: border, Limit: limit})
			wantSame(t, "ListDeliveries", t.list(account, account, driver.DeliveryQuery{}), []driver.Delivery{young})
			for _, id := range []string{"delivered", "dead", "skipped", "pending", "due"} {
				_, err := t.store.EventDeliveries(t.Context(), account, id)
				t.wantError("EventDeliveries", err, apierr.ErrNotFound)
			}
			wantSame(t, "Task.Event", t.claimAll(1)[0].Event, newEvent(account, "young"))
			t.enqueue(newEvent(account, "due"), 1)
			wantSame(t, "Task.Event", t.claimAll(1)[0].Event, newEvent(account, "due"))
			t.enqueue(newEvent(account, "young"), 1)
			t.claimAll(0)
		}
	})

	run("applies each age separately", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		var borders []time.Time
		for i := range 5 {
			t.settleEvent(newEvent("acct", numbered("settled", i)), 1, driver.Deliver)
			t.enqueue(newEvent("acct", numbered("pending", i)), 1)
			later := settlement(t.claimAll(1)[0], driver.Retry)
			later.RetryAfter = time.Hour
			t.settle(later)
			borders = append(borders, t.border())
		}
		const payloads, attempts, ids = 4, 1, 2 // number of expired events by kind of record
		t.purge(driver.Purge{Payloads: borders[payloads-1], Attempts: borders[attempts-1], EventIDs: borders[ids-1], Limit: 2})
		want := map[string]driver.DeliveryState{}
		for i := attempts; i < 5; i++ {
			want[numbered("settled", i)], want[numbered("pending", i)] = driver.Delivered, driver.Pending
			if i < payloads {
				want[numbered("pending", i)] = driver.Dead
			}
		}
		got := map[string]driver.DeliveryState{}
		for _, d := range t.list("acct", "webhook", driver.DeliveryQuery{}) {
			got[d.EventID] = d.State
		}
		wantSame(t, "states of listed deliveries", got, want)
		for i := range payloads {
			for _, id := range []string{numbered("settled", i), numbered("pending", i)} {
				t.wantError("Redeliver of "+id, t.store.Redeliver(t.Context(), "acct", "webhook", id, audit.Entry{}), apierr.ErrNotFound)
			}
		}
		for i := range 5 {
			t.enqueue(newEvent("acct", numbered("settled", i)), 1)
			t.enqueue(newEvent("acct", numbered("pending", i)), 1)
		}
		t.claimAll(2 * ids)
	})

	run("attempts may be purged before event IDs, or after them", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.settleEvent(newEvent("acct", "1"), 1, driver.Deliver)
		first := t.border()
		t.settleEvent(newEvent("acct", "2"), 1, driver.Deliver)
		second := t.border()
		t.purge(driver.Purge{Payloads: second, Attempts: second, EventIDs: first})
		wantSame(t, "ListDeliveries", t.list("acct", "webhook", driver.DeliveryQuery{}), nil)
		t.enqueue(newEvent("acct", "2"), 1)
		t.claimAll(0)
		t.enqueue(newEvent("acct", "1"), 1)
		t.claimAll(1)
	})

	run("finished recoveries are purged by their creation", func(t *tester) {
		border := t.border()
		job := func(id string, createdAt time.Time) driver.Recovery {
			hook := fmt.Sprint("of ", id, " at ", createdAt.UnixMilli()) // a webhook has one recovery at a time
			t.createWebhooks(newWebhook("acct", hook))
			recovery := newRecovery("acct", hook, id, driver.Dead)
			recovery.CreatedAt = createdAt
			t.createRecoveries(recovery)
			return recovery
		}
		job("old", border.Add(-time.Millisecond))
		young := job("young", border)
		t.advance(9)
		undone := job("undone", border.Add(-time.Hour))
		t.purge(driver.Purge{Payloads: border, EventIDs: border})
		wantSame(t, "Done", t.recovery("acct", "old").Done, true)
		t.purge(driver.Purge{Payloads: border, Attempts: border})
		_, err := t.store.RecoveryByID(t.Context(), "acct", "old")
		t.wantError("RecoveryByID", err, apierr.ErrNotFound)
		t.wantDone(young, 0)
		wantSame(t, "RecoveryByID", t.recovery("acct", "undone"), undone)
		t.advance(9)
		t.wantDone(undone, 0)
		job("old", border)
		for i := range 20 {
			job(numbered("many", i), border.Add(-time.Minute))
		}
		t.advance(9)
		t.purge(driver.Purge{Payloads: border, Attempts: border, Limit: 3})
		for i := range 20 {
			_, err := t.store.RecoveryByID(t.Context(), "acct", numbered("many", i))
			t.wantError(fmt.Sprint("RecoveryByID of ", i), err, apierr.ErrNotFound)
		}
		wantSame(t, "Done", t.recovery("acct", "old").Done, true)
	})
}
