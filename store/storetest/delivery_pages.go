package storetest

import (
	"strings"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
)

// deliveryPages tests paging with ListDeliveries.
func deliveryPages(run runner) {
	// many creates a webhook with n pending deliveries, and returns their events, newest first.
	many := func(t *tester, n int) []string {
		t.Helper()
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", n, 1)
		var events []string
		for i := n - 1; i >= 0; i-- {
			events = append(events, numbered("event", i))
		}
		return events
	}

	run("pages of any size make up the list", func(t *tester) {
		const n = 12
		want := many(t, n)
		for limit := 1; limit <= n+1; limit++ {
			wantSame(t, "events", eventIDs(t.list("acct", "webhook", driver.DeliveryQuery{Limit: limit})), want)
		}
	})

	run("events published meanwhile are not on later pages", func(t *tester) {
		want := many(t, 10)
		for limit := 1; limit <= 3; limit++ {
			var got []string
			n := 0
			t.pages("acct", "webhook", driver.DeliveryQuery{Limit: limit}, func(page []driver.Delivery) {
				got = append(got, eventIDs(page)...)
				n++
				t.enqueue(newEvent("acct", numbered(numbered("meanwhile", limit), n)), 1)
			})
			wantSame(t, "events", got, want)
			want = eventIDs(t.list("acct", "webhook", driver.DeliveryQuery{})) // with the new events
		}
	})

	run("deliveries that change state meanwhile are listed once", func(t *tester) {
		want := many(t, 12)
		var got []string
		t.pages("acct", "webhook", driver.DeliveryQuery{Limit: 2}, func(page []driver.Delivery) {
			got = append(got, eventIDs(page)...)
			tasks := t.claim(2)
			for i, task := range tasks {
				t.settle(settlement(task, []driver.Effect{driver.Deliver, driver.GiveUp}[i]))
			}
			t.must(t.store.Redeliver(t.Context(), "acct", "webhook", numbered("event", 0), audit.Entry{}))
		})
		wantSame(t, "events", got, want)
	})

	run("with States, deliveries that keep their state are listed exactly once", func(t *tester) {
		const n = 12
		many(t, n)
		seen, settled := map[string]bool{}, map[string]bool{}
		query := driver.DeliveryQuery{States: []driver.DeliveryState{driver.Pending}, Limit: 2}
		t.pages("acct", "webhook", query, func(page []driver.Delivery) {
			for _, d := range page {
				if d.State != driver.Pending || seen[d.EventID] || settled[d.EventID] {
					t.Errorf("%s is %s; seen before: %v, settled before: %v", d.EventID, d.State, seen[d.EventID], settled[d.EventID])
				}
				seen[d.EventID] = true
			}
			for _, task := range t.claim(1) {
				settled[task.Event.ID] = true
				t.settle(settlement(task, driver.Deliver))
			}
		})
		for i := range n {
			if id := numbered("event", i); !seen[id] && !settled[id] {
				t.Errorf("%s is on no page although it was always pending", id)
			}
		}
	})

	run("a purge ends the list at the purged deliveries", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		for i := range 5 {
			t.settleEvent(newEvent("acct", numbered("event", i)), 1, driver.Deliver)
		}
		border := t.border()
		t.settleEvent(newEvent("acct", "young"), 1, driver.Deliver)
		first := true
		t.pages("acct", "webhook", driver.DeliveryQuery{Limit: 3}, func(page []driver.Delivery) {
			for _, id := range eventIDs(page) {
				if !first && id != "young" {
					t.Errorf("%s is listed after it was purged", id)
				}
			}
			if first {
				t.purge(driver.Purge{Payloads: border, Attempts: border})
				first = false
			}
		})
	})

	run("an After of another list returns some valid page", func(t *tester) {
		a, b := newWebhook("acct", "a"), newWebhook("acct", "b")
		b.Events = []driver.EventType{otherType}
		foreign := newWebhook("other", "foreign")
		t.createWebhooks(a, b, foreign)
		event := newEvent("acct", "of both")
		event.Type = otherType
		t.enqueue(event, 2)
		t.enqueueMany("acct", 5, 1)
		t.enqueueMany("other", 5, 1)
		afters := []string{
			"x", "-1", "1", "5", "9999999999", "18446744073709551615", "18446744073709551616", "99999999999999999999999",
			strings.Repeat("f", 16), strings.Repeat("A", 22), strings.Repeat("/", 4096), long("after", 4096),
			"a", "b", "webhook", numbered("event", 3), "\x01", "1.5", "1e3", "0x10", " 1", "=", "==", "null",
		}
		afters = append(afters, oddStrings...)
		for _, ref := range [][2]string{{"acct", "a"}, {"other", "foreign"}} {
			page, err := t.store.ListDeliveries(t.Context(), ref[0], ref[1], driver.DeliveryQuery{Limit: 1})
			t.must(err)
			afters = append(afters, page.Next, page.Next+"x", page.Next+page.Next, page.Next[:len(page.Next)/2])
		}
		for _, after := range afters {
			for _, w := range []driver.Webhook{a, b, foreign} {
				for _, limit := range []int{1, 99} {
					page, err := t.store.ListDeliveries(t.Context(), w.Account, w.ID, driver.DeliveryQuery{After: after, Limit: limit})
					if err != nil || len(page.Deliveries) > limit {
						t.Errorf("ListDeliveries after %q = %d deliveries, %v, want at most %d", after, len(page.Deliveries), err, limit)
					}
					for _, d := range page.Deliveries {
						wantSame(t, "WebhookID after "+after, d.WebhookID, w.ID)
					}
				}
			}
		}
	})
}
