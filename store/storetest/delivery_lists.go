package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
)

// list returns all deliveries that the query selects. It reads pages of query.Limit deliveries, or
// a single page if Limit is 0.
func (t *tester) list(account, webhookID string, query driver.DeliveryQuery) []driver.Delivery {
	t.Helper()
	if query.Limit == 0 {
		query.Limit = 100_000
	}
	var all []driver.Delivery
	t.pages(account, webhookID, query, func(page []driver.Delivery) { all = append(all, page...) })
	return all
}

// pages calls each for every page of the list.
func (t *tester) pages(account, webhookID string, query driver.DeliveryQuery, each func([]driver.Delivery)) {
	t.Helper()
	for range 100_000 {
		page, err := t.store.ListDeliveries(t.Context(), account, webhookID, query)
		t.must(err)
		if len(page.Deliveries) > query.Limit {
			t.Fatalf("page of at most %d has %d deliveries", query.Limit, len(page.Deliveries))
		}
		each(page.Deliveries)
		if page.Next == "" {
			return
		}
		query.After = page.Next
	}
	t.Fatal("list of pages does not end")
}

func eventIDs(list []driver.Delivery) []string {
	var ids []string
	for _, d := range list {
		ids = append(ids, d.EventID)
	}
	return ids
}

// settleEvent stores an event for n webhooks and settles its deliveries with the outcome. No other
// delivery may be due.
func (t *tester) settleEvent(event driver.EncodedEvent, n int, outcome driver.Effect) {
	t.Helper()
	t.enqueue(event, n)
	for _, task := range t.claimAll(n) {
		t.settle(settlement(task, outcome))
	}
}

// inEachState creates one delivery in each state for the account's only webhook. The state is also
// the ID of the event. The pending delivery is not due for an hour.
func (t *tester) inEachState(account, webhookID string) {
	t.Helper()
	t.settleEvent(newEvent(account, "delivered"), 1, driver.Deliver)
	t.settleEvent(newEvent(account, "dead"), 1, driver.GiveUp)
	t.setActive(account, webhookID, false)
	t.enqueue(newEvent(account, "skipped"), 0)
	t.setActive(account, webhookID, true)
	t.enqueue(newEvent(account, "pending"), 1)
	later := settlement(t.claimAll(1)[0], driver.Retry)
	later.RetryAfter = time.Hour
	t.settle(later)
}

// listDeliveries tests ListDeliveries, except for paging.
func listDeliveries(run runner) {
	run("lists in the reverse order of storing", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		ids := []string{"c", "a", "10", "b", "Z", "9", "é", "0"}
		for i, id := range ids {
			t.enqueue(newEvent("acct", id), 1)
			t.enqueue(newEvent("acct", ids[i/2]), 1) // known already
		}
		slices.Reverse(ids)
		wantSame(t, "events", eventIDs(t.list("acct", "webhook", driver.DeliveryQuery{})), ids)
	})

	run("lists the same deliveries as EventDeliveries", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.inEachState("acct", "webhook")
		t.enqueue(newEvent("acct", "leased"), 1)
		t.claimAll(1)
		t.enqueue(newEvent("acct", "new"), 1)
		var want []driver.Delivery
		for _, id := range []string{"new", "leased", "pending", "skipped", "dead", "delivered"} {
			want = append(want, t.delivery("acct", id))
		}
		wantSame(t, "ListDeliveries", t.list("acct", "webhook", driver.DeliveryQuery{}), want)
		wantSame(t, "State of a claimed delivery", want[1].State, driver.Pending)
	})

	run("lists only deliveries of the webhook", func(t *tester) {
		a, b, c, foreign := newWebhook("acct", "a"), newWebhook("acct", "b"), newWebhook("acct", "c"), newWebhook("other", "d")
		b.Events = []driver.EventType{otherType}
		c.Events = []driver.EventType{thirdType}
		t.createWebhooks(a, b, c, foreign)
		t.enqueue(newEvent("acct", "1"), 1)
		expiring := newEvent("acct", "2")
		expiring.Type = otherType
		t.enqueue(expiring, 2)
		t.enqueue(newEvent("other", "3"), 1)
		for _, want := range []struct {
			account, webhook string
			events           []string
		}{{"acct", "a", []string{"2", "1"}}, {"acct", "b", []string{"2"}}, {"acct", "c", nil}, {"other", "d", []string{"3"}}} {
			list := t.list(want.account, want.webhook, driver.DeliveryQuery{})
			wantSame(t, "events of "+want.webhook, eventIDs(list), want.events)
			for _, d := range list {
				wantSame(t, "WebhookID", d.WebhookID, want.webhook)
				wantSame(t, "Type", d.Type, map[string]driver.EventType{"1": eventType, "2": otherType, "3": eventType}[d.EventID])
			}
		}
	})

	run("returns ErrNotFound if the account has no such webhook", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"), newWebhook("acct", "deleted"), newWebhook("other", "foreign"))
		t.settleEvent(newEvent("acct", "event"), 2, driver.Deliver)
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "deleted", nil, audit.Entry{}))
		for _, ref := range [][2]string{{"acct", "unknown"}, {"acct", "foreign"}, {"other", "webhook"}, {"nobody", "webhook"}, {"acct", "deleted"}, {"acct", "event"}} {
			page, err := t.store.ListDeliveries(t.Context(), ref[0], ref[1], driver.DeliveryQuery{Limit: 9})
			t.wantError("ListDeliveries", err, apierr.ErrNotFound)
			wantSame(t, "page", page, driver.DeliveryPage{})
		}
	})

	run("filters by States, or lists all", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.inEachState("acct", "webhook")
		all := []string{"pending", "skipped", "dead", "delivered"}
		wantSame(t, "events", eventIDs(t.list("acct", "webhook", driver.DeliveryQuery{})), all)
		for set := 1; set < 1<<len(all); set++ {
			var states []driver.DeliveryState
			var want []string
			for i, id := range all {
				if set>>i&1 == 1 {
					states, want = append(states, driver.DeliveryState(id)), append(want, id)
				}
			}
			slices.Reverse(states)
			for _, limit := range []int{1, 99} {
				query := driver.DeliveryQuery{States: states, Limit: limit}
				wantSame(t, "events", eventIDs(t.list("acct", "webhook", query)), want)
			}
		}
		wantSame(t, "events of an unknown state", t.list("acct", "webhook", driver.DeliveryQuery{States: []driver.DeliveryState{"unknown"}}), nil)
	})

	run("filters by Types, together with States and Failed", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		for i := range 3 {
			for _, outcome := range []driver.Effect{driver.Deliver, driver.GiveUp} {
				for _, of := range []driver.EventType{eventType, otherType} {
					event := newEvent("acct", fmt.Sprintf("%d of %s ends as %d", i, of, outcome))
					event.Type = of
					t.settleEvent(event, 1, outcome)
				}
			}
		}
		all := t.list("acct", "webhook", driver.DeliveryQuery{})
		wantSame(t, "number of deliveries", len(all), 12)
		for _, types := range [][]driver.EventType{{eventType}, {otherType}, {otherType, thirdType}, {eventType, otherType}, {thirdType}} {
			for _, states := range [][]driver.DeliveryState{nil, {driver.Dead}, {driver.Delivered}, {driver.Delivered, driver.Dead}} {
				for _, failed := range []bool{false, true} {
					var want []string
					for _, d := range all {
						if slices.Contains(types, d.Type) && (len(states) == 0 || slices.Contains(states, d.State)) && (!failed || d.Failed()) {
							want = append(want, d.EventID)
						}
					}
					for _, limit := range []int{2, 99} {
						query := driver.DeliveryQuery{Types: types, States: states, Failed: failed, Limit: limit}
						wantSame(t, fmt.Sprintf("events of %+v", query), eventIDs(t.list("acct", "webhook", query)), want)
					}
				}
			}
		}
	})

	run("filters by the current state", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		wantIn := func(state driver.DeliveryState) {
			t.Helper()
			for _, s := range []driver.DeliveryState{driver.Pending, driver.Delivered, driver.Dead, driver.Skipped} {
				list := t.list("acct", "webhook", driver.DeliveryQuery{States: []driver.DeliveryState{s}})
				wantSame(t, "whether it is among the "+string(s), len(list) == 1, s == state)
			}
		}
		t.enqueue(newEvent("acct", "event"), 1)
		wantIn(driver.Pending)
		t.settle(settlement(t.claimAll(1)[0], driver.GiveUp))
		wantIn(driver.Dead)
		t.must(t.store.Redeliver(t.Context(), "acct", "webhook", "event", audit.Entry{}))
		wantIn(driver.Pending)
		t.settle(settlement(t.claimAll(1)[0], driver.Deliver))
		wantIn(driver.Delivered)
	})

	run("filters by From (inclusive) and To (exclusive)", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		const n = 4
		var at []time.Time
		for i := range n {
			t.border()
			t.enqueue(newEvent("acct", numbered("event", i)), 1)
			at = append(at, t.delivery("acct", numbered("event", i)).PublishedAt)
		}
		between := func(from, to int, query driver.DeliveryQuery) {
			t.Helper()
			var want []string
			for i := to - 1; i >= from; i-- {
				want = append(want, numbered("event", i))
			}
			for _, query.Limit = range []int{1, 2, 99} {
				wantSame(t, "events", eventIDs(t.list("acct", "webhook", query)), want)
			}
		}
		zone := time.FixedZone("", -7*3600)
		for i := range n {
			between(i, n, driver.DeliveryQuery{From: at[i]})
			between(0, i, driver.DeliveryQuery{To: at[i].In(zone)})
			for j := range n {
				between(i, j, driver.DeliveryQuery{From: at[i].In(zone), To: at[j]})
			}
		}
		between(0, n, driver.DeliveryQuery{From: at[0].Add(-time.Hour), To: at[n-1].Add(time.Millisecond)})
		between(0, 0, driver.DeliveryQuery{From: at[n-1].Add(time.Millisecond)})
		between(0, 0, driver.DeliveryQuery{To: at[0].AddDate(-60, 0, 0)})
		between(0, n, driver.DeliveryQuery{From: at[0].AddDate(-60, 0, 0), To: at[0].AddDate(60, 0, 0)})
	})

	run("combines States, From and To", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		borders := t.settleBetweenBorders()
		for _, limit := range []int{1, 99} {
			query := driver.DeliveryQuery{States: []driver.DeliveryState{driver.Dead}, From: borders[1], To: borders[2], Limit: limit}
			wantSame(t, "events", eventIDs(t.list("acct", "webhook", query)), []string{numbered("dead", 1)})
			query.From = borders[0]
			wantSame(t, "events", eventIDs(t.list("acct", "webhook", query)), []string{numbered("dead", 1), numbered("dead", 0)})
		}
	})
}

// settleBetweenBorders publishes, in each of three rounds, one event that is delivered and one
// event that ends as dead. Events are numbered from 0. It returns a time before each round, see
// border.
func (t *tester) settleBetweenBorders() (borders []time.Time) {
	for i := range 3 {
		borders = append(borders, t.border())
		t.settleEvent(newEvent("acct", numbered("delivered", i)), 1, driver.Deliver)
		t.settleEvent(newEvent("acct", numbered("dead", i)), 1, driver.GiveUp)
	}
	return borders
}
