package storetest

import (
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
)

// durableRecoveries tests that recoveries and recovered deliveries survive a restart.
func durableRecoveries(reopened func(name string, before, after func(*tester))) {
	var done, fresh driver.Recovery
	reopened("recoveries, finished or not", func(t *tester) {
		t.dead("acct", "webhook", 3)
		t.createRecoveries(newRecovery("acct", "webhook", "done", driver.Dead))
		t.advance(9)
		done, fresh = t.recovery("acct", "done"), newRecovery("acct", "webhook", "fresh", driver.Skipped, driver.Delivered)
		t.createRecoveries(fresh)
	}, func(t *tester) {
		wantSame(t, "RecoveryByID", t.recovery("acct", "done"), done)
		wantSame(t, "RecoveryByID", t.recovery("acct", "fresh"), fresh)
		t.wantError("CreateRecovery", t.store.CreateRecovery(t.Context(), fresh, audit.Entry{}), apierr.ErrExists)
		for _, task := range t.claimAll(3) {
			t.settle(settlement(task, driver.Deliver))
		}
		t.advance(9)
		t.wantDone(fresh, 3)
		wantSame(t, "RecoveryByID", t.recovery("acct", "done"), done)
	})

	const n = 30
	var half driver.Recovery
	reopened("an unfinished recovery continues", func(t *tester) {
		t.dead("acct", "webhook", n)
		t.createRecoveries(newRecovery("acct", "webhook", "recovery", driver.Dead))
		for range 3 {
			_, err := t.store.AdvanceRecovery(t.Context(), 4)
			t.must(err)
			for _, task := range t.claim(99) {
				t.settle(settlement(task, driver.GiveUp)) // must not be recovered again
			}
		}
		half = t.recovery("acct", "recovery")
	}, func(t *tester) {
		wantSame(t, "RecoveryByID", t.recovery("acct", "recovery"), half)
		t.advance(4)
		t.wantDone(newRecovery("acct", "webhook", "recovery", driver.Dead), n)
		for _, task := range t.claimAll(n - half.Recovered) {
			t.settle(settlement(task, driver.GiveUp))
		}
		for i := range n {
			wantSame(t, "number of attempts", len(t.delivery("acct", numbered("event", i)).Attempts), 2)
		}
	})

	reopened("recovered deliveries are claimed after all others", func(t *tester) {
		t.dead("a", "a", 4)
		t.createRecoveries(newRecovery("a", "a", "recovery", driver.Dead))
		t.advance(9)
		for i, task := range t.claimAll(4) {
			t.settle(settlement(task, []driver.Effect{driver.Retry, Postpone}[i%2]))
		}
		time.Sleep(3 * time.Millisecond)
		t.enqueue(newEvent("a", "live 1"), 1)
		t.createWebhooks(newWebhook("b", "b"))
		t.enqueue(newEvent("b", "live 2"), 1)
	}, func(t *tester) {
		t.enqueue(newEvent("a", "live 3"), 1)
		for i, task := range t.await(7) {
			before := 0
			if i >= 3 {
				before = 1
			}
			wantSame(t, "Task.Before of number "+task.Event.ID, task.Before, before)
		}
	})
}

// durablePurges tests that purged records stay purged after a restart.
func durablePurges(reopened func(name string, before, after func(*tester))) {
	var border time.Time
	var listed []driver.Delivery
	reopened("purged records stay purged", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.settleEvent(newEvent("acct", "1"), 1, driver.Deliver)
		ids := t.border()
		t.settleEvent(newEvent("acct", "2"), 1, driver.Deliver)
		attempts := t.border()
		t.inEachState("acct", "webhook")
		t.enqueue(newEvent("acct", "due"), 1)
		border = t.border()
		t.enqueue(newEvent("acct", "young"), 1)
		job := newRecovery("acct", "webhook", "recovery", driver.Dead)
		job.CreatedAt, job.To = attempts.Add(-time.Second), job.From
		t.createRecoveries(job)
		t.advance(9)
		t.purge(driver.Purge{Payloads: border, Attempts: attempts, EventIDs: ids})
		listed = t.list("acct", "webhook", driver.DeliveryQuery{})
		wantSame(t, "events", eventIDs(listed), []string{"young", "due", "pending", "skipped", "dead", "delivered"})
	}, func(t *tester) {
		wantSame(t, "ListDeliveries", t.list("acct", "webhook", driver.DeliveryQuery{}), listed)
		_, err := t.store.RecoveryByID(t.Context(), "acct", "recovery")
		t.wantError("RecoveryByID", err, apierr.ErrNotFound)
		wantSame(t, "Task.Event", t.claimAll(1)[0].Event, newEvent("acct", "young"))
		for _, id := range []string{"due", "pending", "skipped", "dead", "delivered"} {
			t.wantError("Redeliver", t.store.Redeliver(t.Context(), "acct", "webhook", id, audit.Entry{}), apierr.ErrNotFound)
		}
		t.enqueue(newEvent("acct", "2"), 1)
		t.enqueue(newEvent("acct", "due"), 1)
		wantSame(t, "EventDeliveries", t.deliveries("acct", "2"), nil)
		t.claimAll(0)
		t.enqueue(newEvent("acct", "1"), 1)
		wantSame(t, "Task.Event.ID", t.claimAll(1)[0].Event.ID, "1")
	})

	const n = 300
	reopened("an unfinished purge continues", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", n, 1)
		border = t.border()
		for range 3 {
			_, err := t.store.Purge(t.Context(), driver.Purge{Payloads: border, Attempts: border, EventIDs: border, Limit: 2})
			t.must(err)
		}
	}, func(t *tester) {
		t.purge(driver.Purge{Payloads: border, Attempts: border, EventIDs: border})
		wantSame(t, "ListDeliveries", t.list("acct", "webhook", driver.DeliveryQuery{}), nil)
		backlog := t.backlog("")
		wantSame(t, "Backlog", backlog, driver.Backlog{})
		t.claimAll(0)
		t.enqueueMany("acct", 3, 1)
		t.claimAll(3)
	})
}
