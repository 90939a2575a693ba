package storetest

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
)

// end settles the one due delivery with the outcome and a matching attempt.
func (t *tester) end(outcome driver.Effect) {
	t.Helper()
	s := settlement(t.claimAll(1)[0], outcome)
	switch outcome {
	case driver.Deliver:
		s.Attempt.Class, s.Attempt.Error, s.Attempt.Status = "", "", 200
	case driver.Retry:
		s.RetryAfter = time.Hour
	}
	t.settle(s)
}

// failed returns the event IDs of the failed deliveries. It reads them in pages, and checks that
// every page except the last is full.
func (t *tester) failed(query driver.DeliveryQuery) []string {
	t.Helper()
	query.Failed = true
	var sizes []int
	var events []string
	t.pages("acct", "webhook", query, func(page []driver.Delivery) {
		sizes, events = append(sizes, len(page)), append(events, eventIDs(page)...)
		for i := range page {
			wantSame(t, "Failed of "+page[i].EventID, page[i].Failed(), true)
		}
	})
	for _, size := range sizes[:len(sizes)-1] {
		wantSame(t, "size of a page that is not the last", size, query.Limit)
	}
	if len(events) > 0 {
		wantSame(t, "last page is empty", sizes[len(sizes)-1] == 0, false)
	}
	return events
}

// failedDeliveries tests ListDeliveries with query.Failed.
func failedDeliveries(run runner) {
	// wantFailed checks the list of failed deliveries, read in pages of several sizes.
	wantFailed := func(t *tester, events ...string) {
		t.Helper()
		for _, limit := range []int{1, 2, 99} {
			wantSame(t, "events with failed deliveries", t.failed(driver.DeliveryQuery{Limit: limit}), events)
		}
	}

	run("lists dead and skipped deliveries, and pending ones after a failed attempt, newest first", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.inEachState("acct", "webhook")
		t.enqueue(newEvent("acct", "released"), 1)
		t.end(Postpone)
		t.claimAll(1)
		t.enqueue(newEvent("acct", "new"), 1)
		wantFailed(t, "pending", "skipped", "dead")
		for state, want := range map[driver.DeliveryState][]string{
			driver.Dead: {"dead"}, driver.Skipped: {"skipped"}, driver.Pending: {"pending"}, driver.Delivered: nil,
		} {
			query := driver.DeliveryQuery{Failed: true, States: []driver.DeliveryState{state}}
			wantSame(t, "events that failed and are "+string(state), eventIDs(t.list("acct", "webhook", query)), want)
		}
	})

	run("does not list deliveries that succeed later", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueue(newEvent("acct", "event"), 1)
		wantFailed(t)
		for range 3 {
			t.end(driver.Retry)
			wantFailed(t, "event")
			t.must(t.store.Redeliver(t.Context(), "acct", "webhook", "event", audit.Entry{}))
			wantFailed(t, "event")
		}
		t.end(driver.Deliver)
		wantFailed(t)
	})

	run("lists redelivered deliveries while their last attempt is a failed one", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		again := func() {
			t.Helper()
			t.must(t.store.Redeliver(t.Context(), "acct", "webhook", "event", audit.Entry{}))
		}
		t.enqueue(newEvent("acct", "event"), 1)
		t.end(driver.GiveUp)
		again()
		wantFailed(t, "event")
		t.end(driver.Deliver)
		wantFailed(t)
		again() // after a success
		wantFailed(t)
		t.end(driver.Retry)
		wantFailed(t, "event")
		again()
		t.end(driver.GiveUp)
		wantFailed(t, "event")
	})

	run("lists skipped deliveries that are resent only after they fail", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		for _, outcome := range []driver.Effect{driver.Deliver, driver.GiveUp} {
			t.setActive("acct", "webhook", false)
			id := numbered("event", int(outcome))
			t.enqueue(newEvent("acct", id), 0)
			t.setActive("acct", "webhook", true)
			wantFailed(t, id)
			t.must(t.store.Redeliver(t.Context(), "acct", "webhook", id, audit.Entry{}))
			wantFailed(t)
			t.end(outcome)
		}
		wantFailed(t, numbered("event", int(driver.GiveUp)))
	})

	run("lists recovered deliveries like redelivered ones", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.inEachState("acct", "webhook")
		t.createRecoveries(newRecovery("acct", "webhook", "recovery", driver.Dead, driver.Skipped))
		t.advance(99)
		wantFailed(t, "pending", "dead")
	})

	run("lists deliveries ended by a purge of their payload until they are purged", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.settleEvent(newEvent("acct", "dead"), 1, driver.GiveUp)
		t.enqueue(newEvent("acct", "pending"), 1)
		border := t.border()
		t.setActive("acct", "webhook", false)
		t.enqueue(newEvent("acct", "young"), 0)
		wantFailed(t, "young", "dead")
		t.purge(driver.Purge{Payloads: border})
		wantFailed(t, "young", "pending", "dead")
		t.purge(driver.Purge{Payloads: border, Attempts: border})
		wantFailed(t, "young")
	})

	run("filters by From (inclusive) and To (exclusive)", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		borders := t.settleBetweenBorders()
		for _, limit := range []int{1, 99} {
			query := driver.DeliveryQuery{From: borders[1], To: borders[2], Limit: limit}
			wantSame(t, "events with failed deliveries", t.failed(query), []string{numbered("dead", 1)})
		}
	})

	run("during changes, deliveries that stay failed are listed exactly once", func(t *tester) {
		const n = 12
		t.dead("acct", "webhook", n)
		all := t.failed(driver.DeliveryQuery{Limit: n})
		wantSame(t, "number of failed deliveries", len(all), n)
		seen := map[string]bool{}
		left := map[string]bool{}
		i := 0
		t.pages("acct", "webhook", driver.DeliveryQuery{Failed: true, Limit: 2}, func(page []driver.Delivery) {
			for _, id := range eventIDs(page) {
				wantSame(t, "already listed, or no longer failed: "+id, seen[id] || left[id], false)
				seen[id] = true
			}
			for _, id := range []string{all[i], all[n-1-i]} { // the first is already listed, the second not yet
				t.must(t.store.Redeliver(t.Context(), "acct", "webhook", id, audit.Entry{}))
				t.end(driver.Deliver)
				left[id] = true
			}
			i++
			t.settleEvent(newEvent("acct", numbered("meanwhile", i)), 1, driver.GiveUp)
		})
		for _, id := range all {
			wantSame(t, "listed, or no longer failed: "+id, seen[id] || left[id], true)
		}
	})

	run("lists only the given webhook's deliveries, and none of a deleted webhook", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"), newWebhook("acct", "other"))
		t.settleEvent(newEvent("acct", "of both"), 2, driver.GiveUp)
		wantFailed(t, "of both")
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "webhook", nil, audit.Entry{}))
		_, err := t.store.ListDeliveries(t.Context(), "acct", "webhook", driver.DeliveryQuery{Failed: true, Limit: 9})
		t.wantError("ListDeliveries", err, apierr.ErrNotFound)
		query := driver.DeliveryQuery{Failed: true}
		wantSame(t, "events of the other webhook", eventIDs(t.list("acct", "other", query)), []string{"of both"})
	})

	run("agrees with the list of all deliveries after any changes", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		random := rand.New(rand.NewPCG(1, 2))
		n := 0
		for step := range 400 {
			switch random.IntN(10) {
			case 0, 1, 2:
				_, err := t.store.Enqueue(t.Context(), newEvent("acct", numbered("event", n)))
				t.must(err)
				n++
			case 3:
				t.setActive("acct", "webhook", random.IntN(4) > 0)
			case 4:
				if n > 0 {
					t.must(t.store.Redeliver(t.Context(), "acct", "webhook", numbered("event", random.IntN(n)), audit.Entry{}))
				}
			default:
				var ends []Settlement
				for _, task := range t.claim(3) {
					s := settlement(task, []driver.Effect{driver.Deliver, driver.Retry, driver.GiveUp, Postpone}[random.IntN(4)])
					if s.Effect == driver.Deliver {
						s.Attempt.Class, s.Attempt.Error = "", ""
					}
					ends = append(ends, s)
				}
				t.settle(ends...)
			}
			if step%20 != 19 {
				continue
			}
			all := t.list("acct", "webhook", driver.DeliveryQuery{})
			wantSame(t, "number of deliveries", len(all), n)
			all = slices.DeleteFunc(all, func(d driver.Delivery) bool { return !d.Failed() })
			wantFailed(t, eventIDs(all)...)
		}
	})
}
