package storetest

import (
	"crypto/rand"
	"errors"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
)

// border returns a time by the store's clock. All events published so far were published before it,
// and all later events are published at or after it.
func (t *tester) border() time.Time {
	t.Helper()
	w := newWebhook("border", "border")
	w.Active = false
	if err := t.store.CreateWebhook(t.Context(), w, driver.CreateOptions{}); !errors.Is(err, apierr.ErrExists) {
		t.must(err)
	}
	now := func() time.Time {
		id := rand.Text()
		t.enqueue(newEvent("border", id), 0)
		return t.delivery("border", id).PublishedAt
	}
	first := now()
	for end := time.Now().Add(eventTimeout); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if next := now(); next.After(first) {
			return next
		}
	}
	t.Fatalf("PublishedAt did not advance for %v", eventTimeout)
	return first
}

func (t *tester) now() time.Time {
	t.Helper()
	now, err := t.store.Now(t.Context())
	t.must(err)
	return now
}

// purge calls Purge until nothing remains to be removed, and returns the number of calls. The
// default Limit is 100.
func (t *tester) purge(purge driver.Purge) (calls int) {
	t.Helper()
	if purge.Limit == 0 {
		purge.Limit = 100
	}
	for calls = 1; calls < 100_000; calls++ {
		more, err := t.store.Purge(t.Context(), purge)
		t.must(err)
		if !more {
			return calls
		}
	}
	t.Fatal("Purge does not end")
	return calls
}

// wantPurged checks that a delivery ended because its payload was purged, and that its last attempt
// records this.
func (t *tester) wantPurged(before driver.Delivery) {
	t.Helper()
	got := t.delivery("acct", before.EventID)
	if len(got.Attempts) == 0 {
		t.Fatalf("no attempt of %s, which is %s", got.EventID, got.State)
	}
	last := got.Attempts[len(got.Attempts)-1]
	if off := time.Since(last.StartedAt).Abs(); off > time.Minute {
		t.Errorf("StartedAt of the last attempt differs from now by %v", off)
	}
	before.State, before.NextAttemptAt = driver.Dead, time.Time{}
	number := 1
	if n := len(before.Attempts); n > 0 {
		number = before.Attempts[n-1].Number + 1
	}
	before.Attempts = append(before.Attempts, driver.ExpiredAttempt(number, last.StartedAt))
	wantSame(t, "EventDeliveries", got, before)
}

// purging tests which payloads Purge removes, and which clock it uses.
func purging(run runner) {
	run("Now is the clock of publications", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		for i := range 5 {
			before := t.now()
			t.enqueue(newEvent("acct", numbered("event", i)), 1)
			after := t.now()
			if at := t.delivery("acct", numbered("event", i)).PublishedAt; at.Before(before.Truncate(time.Millisecond)) || at.After(after.Add(time.Millisecond)) {
				t.Errorf("event published at %v, but Now was %v before and %v after", at, before, after)
			}
		}
	})

	run("zero times purge nothing", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.inEachState("acct", "webhook")
		t.enqueue(newEvent("acct", "due"), 1)
		done, undone := newRecovery("acct", "webhook", "done", driver.Dead), newRecovery("acct", "webhook", "undone", driver.Dead)
		done.To = done.From
		t.createRecoveries(done)
		t.advance(9)
		t.createRecoveries(undone)
		t.border()
		before := t.list("acct", "webhook", driver.DeliveryQuery{})
		t.purge(driver.Purge{})
		t.purge(driver.Purge{Payloads: time.Unix(0, 0), Attempts: time.Unix(0, 0), EventIDs: time.Unix(0, 0), Limit: 1})
		wantSame(t, "ListDeliveries", t.list("acct", "webhook", driver.DeliveryQuery{}), before)
		t.wantDone(done, 0)
		wantSame(t, "RecoveryByID", t.recovery("acct", "undone"), undone)
		for _, d := range before {
			t.enqueue(newEvent("acct", d.EventID), map[bool]int{true: 0, false: 1}[d.EventID == "skipped"])
			wantSame(t, "Redeliver", t.store.Redeliver(t.Context(), "acct", "webhook", d.EventID, audit.Entry{}), nil)
		}
		for _, task := range t.claimAll(5) {
			wantSame(t, "Task.Event", task.Event, newEvent("acct", task.Event.ID))
		}
	})

	run("payloads: pending deliveries become Dead, and others do not change", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.inEachState("acct", "webhook")
		t.enqueue(newEvent("acct", "due"), 1)
		t.updateWebhook("acct", "webhook", func(w *driver.Webhook) { w.FailingSince, w.WarnedAt = time.Time{}, time.Time{} })
		w := t.webhook("acct", "webhook")
		border := t.border()
		t.enqueue(newEvent("acct", "young"), 1)
		before := map[string]driver.Delivery{}
		for _, d := range t.list("acct", "webhook", driver.DeliveryQuery{}) {
			before[d.EventID] = d
		}
		t.purge(driver.Purge{Payloads: border})
		t.wantPurged(before["pending"])
		t.wantPurged(before["due"])
		for _, id := range []string{"delivered", "dead", "skipped", "young"} {
			wantSame(t, "EventDeliveries", t.delivery("acct", id), before[id])
		}
		wantSame(t, "WebhookByID", t.webhook("acct", "webhook"), w)
		wantSame(t, "Task.Event", t.claimAll(1)[0].Event, newEvent("acct", "young"))
		backlog := t.backlog("webhook")
		wantSame(t, "Backlog", backlog, driver.Backlog{Pending: 1})

		// Repeating the purge changes nothing.
		list := t.list("acct", "webhook", driver.DeliveryQuery{})
		t.purge(driver.Purge{Payloads: border})
		wantSame(t, "ListDeliveries", t.list("acct", "webhook", driver.DeliveryQuery{}), list)
	})

	run("payloads: also pending deliveries of inactive webhooks and redelivered ones", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.inEachState("acct", "webhook")
		t.setActive("acct", "webhook", false)
		ids := []string{"delivered", "dead", "skipped"}
		for _, id := range ids {
			t.must(t.store.Redeliver(t.Context(), "acct", "webhook", id, audit.Entry{}))
		}
		before := t.list("acct", "webhook", driver.DeliveryQuery{})
		t.purge(driver.Purge{Payloads: t.border()})
		for _, d := range before {
			t.wantPurged(d)
		}
		t.setActive("acct", "webhook", true)
		t.claimAll(0)
	})

	run("payloads: also recovered deliveries", func(t *tester) {
		t.dead("acct", "webhook", 3)
		t.createRecoveries(newRecovery("acct", "webhook", "recovery", driver.Dead))
		t.advance(9)
		before := t.list("acct", "webhook", driver.DeliveryQuery{})
		t.purge(driver.Purge{Payloads: t.border()})
		for _, d := range before {
			t.wantPurged(d)
		}
		t.claimAll(0)
	})

	run("payloads: Redeliver then returns ErrNotFound", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.inEachState("acct", "webhook")
		t.enqueue(newEvent("acct", "leased"), 1)
		t.claimAll(1)
		t.purge(driver.Purge{Payloads: t.border()})
		before := t.list("acct", "webhook", driver.DeliveryQuery{})
		for _, id := range []string{"delivered", "dead", "skipped", "pending", "leased"} {
			t.wantError("Redeliver", t.store.Redeliver(t.Context(), "acct", "webhook", id, audit.Entry{}), apierr.ErrNotFound)
		}
		wantSame(t, "ListDeliveries", t.list("acct", "webhook", driver.DeliveryQuery{}), before)
		t.claimAll(0)
	})

	run("purges about Limit events per call, the oldest first", func(t *tester) {
		const n = 300
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", n, 1)
		border := t.border()
		t.enqueue(newEvent("acct", "young"), 1)
		check := func() {
			t.Helper()
			list := t.list("acct", "webhook", driver.DeliveryQuery{})
			for i := 1; i < len(list); i++ {
				if list[i-1].State == driver.Dead && list[i].State == driver.Pending {
					t.Fatalf("%s was purged before %s, which is older", list[i-1].EventID, list[i].EventID)
				}
			}
		}
		more, err := t.store.Purge(t.Context(), driver.Purge{Payloads: border, Limit: 1})
		t.must(err)
		check()
		if dead := t.list("acct", "webhook", driver.DeliveryQuery{States: []driver.DeliveryState{driver.Dead}}); !more || len(dead) == n {
			t.Fatalf("call with Limit 1 purged %d of %d events, more = %v", len(dead), n, more)
		}
		for calls := 0; more; calls++ {
			more, err = t.store.Purge(t.Context(), driver.Purge{Payloads: border, Limit: 20})
			t.must(err)
			check()
			if calls > 100*n {
				t.Fatal("Purge does not end")
			}
		}
		dead := t.list("acct", "webhook", driver.DeliveryQuery{States: []driver.DeliveryState{driver.Dead}})
		wantSame(t, "purged deliveries", len(dead), n)
		wantSame(t, "Task.Event.ID", t.claimAll(1)[0].Event.ID, "young")
	})

	run("attempts: listed deliveries keep their state during a purge", func(t *tester) {
		const n = 6
		for i := range n {
			t.createWebhooks(newWebhook("acct", numbered("webhook", i)))
		}
		t.enqueue(newEvent("acct", "event"), n)
		for _, outcome := range []driver.Effect{driver.GiveUp, driver.Deliver} {
			var settlements []Settlement
			for _, task := range t.claimAll(n) {
				settlements = append(settlements, settlement(task, outcome))
			}
			t.settle(settlements...)
			for i := range n {
				if outcome == driver.GiveUp {
					t.must(t.store.Redeliver(t.Context(), "acct", numbered("webhook", i), "event", audit.Entry{}))
				}
			}
		}
		border := t.border()
		for more, calls := true, 0; more; calls++ {
			var err error
			more, err = t.store.Purge(t.Context(), driver.Purge{Payloads: border, Attempts: border, Limit: 1})
			t.must(err)
			for i := range n {
				for _, d := range t.list("acct", numbered("webhook", i), driver.DeliveryQuery{}) {
					wantSame(t, "State of a delivery while Purge runs", d.State, driver.Delivered)
				}
			}
			if calls > 100*n {
				t.Fatal("Purge does not end")
			}
		}
	})
}
