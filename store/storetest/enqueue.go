package storetest

import (
	"bytes"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
)

func enqueue(run runner) {
	run("makes a delivery for each active subscribed webhook", func(t *tester) {
		matching, another := newWebhook("acct", "b"), newWebhook("acct", "d")
		inactive, unsubscribed := newWebhook("acct", "a"), newWebhook("acct", "c")
		inactive.Active = false
		unsubscribed.Events = []driver.EventType{otherType}
		t.createWebhooks(another, unsubscribed, inactive, matching, newWebhook("acc", "e"), newWebhook("acctx", "f"))
		event := newEvent("acct", "event")
		t.enqueue(event, 2)
		got := map[string]Task{}
		for _, task := range t.claimAll(2) {
			got[task.Webhook.ID] = task
		}
		for _, w := range []driver.Webhook{matching, another} {
			wantSame(t, "Task.Webhook", *got[w.ID].Webhook, w)
			wantSame(t, "Task.Event", got[w.ID].Event, event)
			wantSame(t, "Task.Attempt", got[w.ID].Attempt, 1)
			wantSame(t, "Task.Err", got[w.ID].Err, nil)
		}
		for _, d := range t.deliveries("acct", "event") {
			wantSame(t, "whether the delivery is pending for "+d.WebhookID, d.State == driver.Pending, d.WebhookID != "a")
		}
	})

	run("uses the webhooks at the time of the call", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"))
		t.enqueue(newEvent("acct", "1"), 1)
		t.setActive("acct", "a", false)
		t.enqueue(newEvent("acct", "2"), 0)
		t.createWebhooks(newWebhook("acct", "b"))
		t.enqueue(newEvent("acct", "3"), 1)
		t.setActive("acct", "a", true)
		t.enqueue(newEvent("acct", "4"), 2)
		t.updateWebhook("acct", "a", func(w *driver.Webhook) { w.Events = w.Events[:1] })
		t.enqueue(newEvent("acct", "5"), 1)
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "b", nil, audit.Entry{}))
		t.enqueue(newEvent("acct", "6"), 0)
	})

	run("makes the deliveries due now", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		before := time.Now()
		t.enqueue(newEvent("acct", "event"), 1)
		d := t.delivery("acct", "event")
		if off := d.NextAttemptAt.Sub(before).Abs(); off > time.Minute {
			t.Errorf("NextAttemptAt differs from now by %v", off)
		}
		wantSame(t, "EventDeliveries", d, driver.Delivery{
			EventID: "event", WebhookID: "webhook", Type: eventType, Resource: "bucket-1", PublishedAt: d.PublishedAt,
			State: driver.Pending, NextAttemptAt: d.NextAttemptAt,
		})
		t.claimAll(1)
	})

	run("stores bodies unchanged", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		for i, body := range [][]byte{
			{},
			[]byte(" {\"b\":1,\n\t\"a\":1.0, \"a\":\"\\u00e9é\u2028\" }\r\n"),
			append(append([]byte(`"`), bytes.Repeat([]byte("0123456789abcdef"), 256<<10/16)...), '"'),
			{0, 1, 2, 0xfe, 0xff},
		} {
			event := newEvent("acct", numbered("event", i))
			event.Body = body
			t.enqueue(event, 1)
			if got := t.claimAll(1)[0].Event.Body; !bytes.Equal(got, body) {
				t.Errorf("body %d changed", i)
			}
		}
	})

	run("returns trace contexts, or none, with every claim", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		const n = 20
		want := make(map[string]string)
		event := func(id, trace string) driver.EncodedEvent {
			e := newEvent("acct", id)
			e.TraceContext, want[id] = trace, trace
			return e
		}
		events := make([]driver.EncodedEvent, n)
		for i := range events {
			events[i] = event(numbered("event", i), strings.Repeat("x", 64*(i%2)))
		}
		inParallel(n, func(i int) { // a store may commit them in one or more batches
			if _, err := t.store.Enqueue(t.Context(), events[i]); err != nil {
				t.Error(err)
			}
		})
		t.enqueueOnce(event("once", "trace of once"), 1, driver.DedupKey{Key: "once", Until: some})
		alert := driver.AlertEvent{EncodedEvent: event("alert", "trace of an alert")}
		_, err := t.store.UpdateAlert(t.Context(), "acct", "series", func(step *driver.AlertStep) error {
			step.Events = []driver.AlertEvent{alert}
			return nil
		})
		t.must(err)
		for attempt := range 2 {
			got := make(map[string]string)
			for _, task := range t.claimAll(n + 2) {
				got[task.Event.ID] = task.Event.TraceContext
				t.settle(Settlement{Task: task, Effect: driver.Retry, Attempt: attemptOf(task)})
			}
			wantSame(t, fmt.Sprint("claim ", attempt+1), got, want)
		}
		for id, trace := range want {
			found, _, err := t.store.EventByID(t.Context(), "acct", id)
			t.must(err)
			wantSame(t, "EventByID", found.TraceContext, trace)
		}
	})

	run("a known ID stores nothing and returns the first result", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"))
		event := newEvent("acct", "event")
		t.enqueue(event, 2)
		first := t.deliveries("acct", "event")
		t.createWebhooks(newWebhook("acct", "c"))
		different := event
		different.Type, different.Timestamp, different.Body = otherType, some.Add(time.Hour), []byte("{}")
		t.enqueue(event, 2)
		t.enqueue(different, 2)
		wantSame(t, "EventDeliveries", t.deliveries("acct", "event"), first)

		tasks := t.claimAll(2)
		wantSame(t, "Task.Event", tasks[0].Event, event)
		wantSame(t, "Task.Event", tasks[1].Event, event)
		t.settle(settlement(tasks[0], driver.Deliver), settlement(tasks[1], driver.GiveUp))
		t.enqueue(different, 2)
		t.enqueue(newEvent("acct", "pending"), 3)
		for _, id := range []string{"a", "b", "c"} {
			t.must(t.store.DeleteWebhook(t.Context(), "acct", id, nil, audit.Entry{}))
		}
		t.enqueue(different, 2)
		t.enqueue(newEvent("acct", "pending"), 3)
		t.claimAll(0)
	})

	run("an event without subscribers is known, too", func(t *tester) {
		t.enqueue(newEvent("acct", "event"), 0)
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueue(newEvent("acct", "event"), 0)
		wantSame(t, "EventDeliveries", t.deliveries("acct", "event"), nil)
		t.claimAll(0)
	})

	run("another account may have an event with the same ID", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"), newWebhook("other", "b"))
		own, others := newEvent("acct", "event"), newEvent("other", "event")
		others.Body = []byte(`"others"`)
		t.enqueue(own, 1)
		t.enqueue(others, 1)
		for _, task := range t.claimAll(2) {
			want := own
			if task.Event.Account == "other" {
				want = others
			}
			wantSame(t, "Task.Event", task.Event, want)
			wantSame(t, "Task.Webhook.Account", task.Webhook.Account, want.Account)
		}
	})
}

// enqueueRaces tests concurrent calls to Enqueue.
func enqueueRaces(run runner) {
	run("concurrent calls with the same ID store one event", func(t *tester) {
		const rounds = 10
		t.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"), newWebhook("acct", "c"))
		for round := range rounds {
			inParallel(8, func(int) {
				n, err := t.store.Enqueue(t.Context(), newEvent("acct", numbered("event", round)))
				if n != 3 || err != nil {
					t.Errorf("Enqueue = %d, %v, want 3", n, err)
				}
			})
			wantSame(t, "number of deliveries", len(t.deliveries("acct", numbered("event", round))), 3)
		}
		t.claimAll(3 * rounds)
	})

	// racing enqueues events in some goroutines while change runs in another. It checks that each
	// event whose Enqueue began after change returned has want deliveries, and returns the total
	// number of deliveries.
	racing := func(t *tester, account string, want int, change func() error) (total int) {
		t.Helper()
		const goroutines, each = 3, 10
		var changed atomic.Bool
		var sum atomic.Int64
		inParallel(goroutines+1, func(i int) {
			if i == goroutines {
				t.wantError("the change", change(), nil)
				changed.Store(true)
				return
			}
			for j, afterwards := 0, false; j < each || !afterwards; j++ {
				afterwards = changed.Load()
				event := newEvent(account, numbered(numbered("event", i), j))
				n, err := t.store.Enqueue(t.Context(), event)
				if err != nil || afterwards && n != want {
					t.Errorf("Enqueue = %d, %v, want %d after the change", n, err, want)
					return
				}
				list, err := t.store.EventDeliveries(t.Context(), account, event.ID)
				pending := 0
				for _, d := range list {
					if d.State == driver.Pending {
						pending++
					}
				}
				if err != nil || len(list) > 0 && pending != n || want > 0 && len(list) != n {
					t.Errorf("EventDeliveries: %d of %d deliveries pending, %v, want %d as returned by Enqueue", pending, len(list), err, n)
				}
				sum.Add(int64(n))
			}
		})
		return int(sum.Load())
	}

	run("a webhook being created gets all or no deliveries of an event", func(t *tester) {
		total := 0
		for round := range 10 {
			account := numbered("acct", round)
			total += racing(t, account, 1, func() error {
				return t.store.CreateWebhook(t.Context(), newWebhook(account, account), driver.CreateOptions{})
			})
		}
		t.claimAll(total)
	})

	run("a webhook being deleted has no pending deliveries in the end", func(t *tester) {
		for round := range 10 {
			account := numbered("acct", round)
			t.createWebhooks(newWebhook(account, account))
			racing(t, account, 0, func() error {
				return t.store.DeleteWebhook(t.Context(), account, account, nil, audit.Entry{})
			})
		}
		t.claimAll(0)
	})

	run("a webhook being disabled keeps earlier deliveries", func(t *tester) {
		total := 0
		for round := range 10 {
			account := numbered("acct", round)
			t.createWebhooks(newWebhook(account, account))
			total += racing(t, account, 0, func() error {
				_, err := t.store.UpdateWebhook(t.Context(), account, account, turnOff)
				return err
			})
		}
		t.claimAll(0)
		for round := range 10 {
			t.setActive(numbered("acct", round), numbered("acct", round), true)
		}
		t.claimAll(total)
	})
}
