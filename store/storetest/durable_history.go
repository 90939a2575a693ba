package storetest

import (
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
)

// durableHistory tests that lists, redelivered deliveries and skipped deliveries survive a restart.
func durableHistory(reopened func(name string, before, after func(*tester))) {
	var listed []driver.Delivery
	var pending driver.Backlog
	attempts := []driver.Attempt{
		{Number: 1, StartedAt: some, Duration: time.Microsecond, Status: 204, Response: long("response", 1024)},
		{Number: 1, StartedAt: some, Class: driver.ClassTLS, Error: "é", Response: "\x01\u2028"},
	}
	reopened("deliveries in every state with all attempts", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.inEachState("acct", "webhook")
		for i, attempt := range attempts {
			t.enqueue(newEvent("acct", numbered("event", i)), 1)
			end := settlement(t.claimAll(1)[0], driver.Deliver)
			end.Attempt = attempt
			t.settle(end)
		}
		t.enqueue(newEvent("acct", "due"), 1)
		listed, pending = t.list("acct", "webhook", driver.DeliveryQuery{}), t.backlog("")
	}, func(t *tester) {
		wantSame(t, "ListDeliveries", t.list("acct", "webhook", driver.DeliveryQuery{}), listed)
		for _, d := range listed {
			wantSame(t, "EventDeliveries", t.delivery("acct", d.EventID), d)
		}
		for i, attempt := range attempts {
			wantSame(t, "Attempts", t.delivery("acct", numbered("event", i)).Attempts, []driver.Attempt{attempt})
		}
		got := t.backlog("")
		if off := got.OldestDue.Sub(pending.OldestDue).Abs(); got.Pending != pending.Pending || off > 5*time.Millisecond {
			t.Errorf("Backlog = %v, want %v", got, pending)
		}
		wantSame(t, "Task.Event.ID", t.claimAll(1)[0].Event.ID, "due")

		// Skipped deliveries remain and can be redelivered.
		t.enqueue(newEvent("acct", "skipped"), 0)
		t.must(t.store.Redeliver(t.Context(), "acct", "webhook", "skipped", audit.Entry{}))
		wantSame(t, "Task.Event", t.claimAll(1)[0].Event, newEvent("acct", "skipped"))
	})

	follow := driver.EventQuery{OldestFirst: true, Limit: 2}
	followed := func(t *tester, want ...string) {
		t.Helper()
		page, err := t.store.ListEvents(t.Context(), "acct", follow)
		t.must(err)
		var ids []string
		for _, e := range page.Events {
			ids = append(ids, e.ID)
		}
		wantSame(t, "events", ids, want)
		follow.After = page.Resume
	}
	reopened("the position of a feed reader", func(t *tester) {
		for _, id := range []string{"c", "b", "a"} {
			t.enqueue(newEvent("acct", id), 0)
		}
		followed(t, "c", "b")
	}, func(t *tester) {
		t.enqueue(newEvent("acct", "0"), 0)
		followed(t, "a", "0")
		followed(t)
	})
	reopened("the position of a feed reader after all events were purged", func(t *tester) {
		follow.After = ""
		t.enqueue(newEvent("acct", "first"), 0)
		followed(t, "first")
		border := t.border()
		t.purge(driver.Purge{Payloads: border, Attempts: border, EventIDs: border, Limit: 99})
		followed(t)
	}, func(t *tester) {
		followed(t)
		t.enqueue(newEvent("acct", "second"), 0)
		followed(t, "second")
	})

	var again driver.Delivery
	reopened("Redeliver", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.inEachState("acct", "webhook")
		for _, id := range []string{"delivered", "dead", "skipped", "pending"} {
			t.must(t.store.Redeliver(t.Context(), "acct", "webhook", id, audit.Entry{}))
		}
		for _, task := range t.claimAll(4) {
			if task.Event.ID == "dead" {
				t.settle(settlement(task, driver.Retry))
			} else {
				t.settle(settlement(task, Postpone))
			}
		}
		again = t.delivery("acct", "dead")
	}, func(t *tester) {
		wantSame(t, "EventDeliveries", t.delivery("acct", "dead"), again)
		type numbers struct{ Attempt, Before int }
		got := map[string]numbers{}
		for _, task := range t.await(4) {
			wantSame(t, "Task.Event", task.Event, newEvent("acct", task.Event.ID))
			if task.Event.ID != "pending" { // was pending already, so Before may differ
				got[task.Event.ID] = numbers{task.Attempt, task.Before}
			}
		}
		wantSame(t, "numbers of attempts", got, map[string]numbers{"delivered": {2, 1}, "dead": {3, 1}, "skipped": {1, 0}})
	})

	var settled []driver.Delivery
	reopened("the previous state of a redelivered delivery", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.inEachState("acct", "webhook")
		settled = []driver.Delivery{t.delivery("acct", "dead"), t.delivery("acct", "delivered")}
		for _, d := range settled {
			t.must(t.store.Redeliver(t.Context(), "acct", "webhook", d.EventID, audit.Entry{}))
		}
		t.must(t.store.Redeliver(t.Context(), "acct", "webhook", "skipped", audit.Entry{}))
	}, func(t *tester) {
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "webhook", nil, audit.Entry{}))
		for _, d := range settled {
			wantSame(t, "EventDeliveries", t.delivery("acct", d.EventID), d)
		}
		for _, id := range []string{"skipped", "pending"} {
			wantSame(t, "EventDeliveries of "+id, t.deliveries("acct", id), nil)
		}
		t.claimAll(0)
	})

	var rest []string
	var page driver.DeliveryPage
	reopened("the order of a list and the positions of its pages", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		for _, id := range []string{"c", "a", "9", "b", "10", "d"} {
			t.enqueue(newEvent("acct", id), 1)
		}
		var err error
		page, err = t.store.ListDeliveries(t.Context(), "acct", "webhook", driver.DeliveryQuery{Limit: 2})
		t.must(err)
		rest = eventIDs(t.list("acct", "webhook", driver.DeliveryQuery{After: page.Next}))
		wantSame(t, "events", append(eventIDs(page.Deliveries), rest...), []string{"d", "10", "b", "9", "a", "c"})
	}, func(t *tester) {
		t.enqueue(newEvent("acct", "e"), 1)
		wantSame(t, "events", eventIDs(t.list("acct", "webhook", driver.DeliveryQuery{Limit: 1})), append(append([]string{"e"}, eventIDs(page.Deliveries)...), rest...))
		wantSame(t, "events of the later pages", eventIDs(t.list("acct", "webhook", driver.DeliveryQuery{After: page.Next, Limit: 1})), rest)
		var last time.Time
		for _, d := range t.list("acct", "webhook", driver.DeliveryQuery{}) {
			if !last.IsZero() && d.PublishedAt.After(last) {
				t.Errorf("%s published at %v, later than the event listed before it, at %v", d.EventID, d.PublishedAt, last)
			}
			last = d.PublishedAt
		}
	})
}
