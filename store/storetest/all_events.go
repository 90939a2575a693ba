package storetest

import (
	"fmt"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/driver"
)

// allEvents checks which events reach webhooks that subscribe to driver.AllEvents.
func allEvents(run runner) {
	all := []driver.EventType{driver.AllEvents}
	required := []scopes.Scope{scopes.FilesRead, "teams:read"}
	// fill creates webhooks for all events, one of them inactive and one without scopes, and a webhook
	// that was subscribed to all events in the past.
	fill := func(t *tester) {
		for _, id := range []string{"all", "former", "off", "without"} {
			w := newWebhook("acct", id)
			w.Events, w.EventScopes, w.Active = all, required, id != "off"
			switch id {
			case "former":
				w.Events, w.PastEvents = []driver.EventType{otherType}, all
			case "without":
				w.EventScopes = nil
			}
			t.createWebhooks(w)
			wantSame(t, "stored webhook", t.webhook("acct", id), w)
		}
	}
	of := func(id string, scope scopes.Scope) driver.EncodedEvent {
		e := newEvent("acct", id)
		e.Scope = scope
		return e
	}
	receivers := func(t *tester, event string) map[string]driver.DeliveryState {
		states := make(map[string]driver.DeliveryState)
		for _, d := range t.deliveries("acct", event) {
			states[d.WebhookID] = d.State
		}
		return states
	}

	run("a webhook for all events gets those of types with its scopes", func(t *tester) {
		fill(t)
		for scope, n := range map[scopes.Scope]int{scopes.FilesRead: 1, "teams:read": 1, "teams:rea": 0, scopes.AccountRead: 0, "": 0} {
			id := fmt.Sprintf("of %q", scope)
			t.enqueue(of(id, scope), n)
			want := map[string]driver.DeliveryState{}
			if n > 0 {
				want["all"], want["off"] = driver.Pending, driver.Skipped
			}
			wantSame(t, "receivers "+id, receivers(t, id), want)
		}
		for range 2 { // at first, and again
			for _, task := range t.claimAll(2) {
				wantSame(t, "ID of a loaded webhook", task.Webhook.ID, "all")
				wantSame(t, "its events", task.Webhook.Events, all)
				wantSame(t, "its scopes", task.Webhook.EventScopes, required)
				wantSame(t, "loaded event", task.Event, newEvent("acct", task.Event.ID))
				t.settle(Settlement{Task: task, Effect: driver.Retry, Attempt: attemptOf(task)})
			}
		}
	})

	run("events of alerts and with deduplication keys, too", func(t *tester) {
		fill(t)
		_, err := t.store.UpdateAlert(t.Context(), "acct", "series", func(step *driver.AlertStep) error {
			step.Events = []driver.AlertEvent{{EncodedEvent: of("alert", "teams:read"), WebhookID: "all"}, {EncodedEvent: of("other", scopes.AccountRead), WebhookID: "all"}}
			return nil
		})
		t.must(err)
		t.enqueueOnce(of("once", scopes.FilesRead), 1, driver.DedupKey{Key: "a", Until: some})
		wantSame(t, "receivers of the alert", receivers(t, "alert"), map[string]driver.DeliveryState{"all": driver.Pending})
		wantSame(t, "receivers of the other alert", len(receivers(t, "other")), 0)
		wantSame(t, "receivers of once", receivers(t, "once"), map[string]driver.DeliveryState{"all": driver.Pending, "off": driver.Skipped})
	})

	run("changes apply to later events", func(t *tester) {
		fill(t)
		t.enqueue(of("1", scopes.AccountRead), 0)
		t.updateWebhook("acct", "all", func(w *driver.Webhook) { w.EventScopes = append(w.EventScopes, scopes.AccountRead) })
		t.enqueue(of("2", scopes.AccountRead), 1)
		t.updateWebhook("acct", "all", func(w *driver.Webhook) { w.Events = []driver.EventType{otherType} })
		t.enqueue(of("3", scopes.AccountRead), 0)
		t.updateWebhook("acct", "former", func(w *driver.Webhook) { w.Events = all })
		t.enqueue(of("4", scopes.FilesRead), 1)
		t.enqueue(of("5", scopes.AccountRead), 0)
	})

	run("changes during publication neither lose nor add events", func(t *tester) {
		w := newWebhook("acct", "a")
		w.Events = []driver.EventType{eventType}
		t.createWebhooks(w)
		const events = 64
		inParallel(events+8, func(i int) {
			if i >= events {
				_, err := t.store.UpdateWebhook(t.Context(), "acct", "a", func(w *driver.Webhook, _ *audit.Entry) error {
					if w.Events = []driver.EventType{eventType}; i%2 == 0 {
						w.Events, w.EventScopes = all, required
					}
					return nil
				})
				t.wantError("UpdateWebhook", err, nil)
				return
			}
			e, want := of(numbered("event", i), required[i%2]), 1
			if i%4 == 0 {
				e.Type, e.Scope, want = otherType, scopes.AccountRead, 0
			}
			n, err := t.store.Enqueue(t.Context(), e)
			t.wantError("Enqueue", err, nil)
			if n != want {
				t.Errorf("%s has %d deliveries, want %d", e.ID, n, want)
			}
		})
	})
}
