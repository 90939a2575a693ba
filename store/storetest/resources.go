package storetest

import (
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/store/driver"
)

// resources checks that events reach only webhooks whose resources allow them, and that lists and
// recoveries filter by resource.
func resources(run runner) {
	// fill publishes an event for each of the resources a, b and none, named like its resource, to
	// webhooks limited to a, to a and b, and to none, and to an inactive one limited to b.
	fill := func(t *tester) {
		for id, names := range map[string][]string{"to_a": {"a"}, "to_ab": {"b", "a"}, "to_all": nil} {
			w := newWebhook("acct", id)
			w.Resources = limitedTo(names...)
			t.createWebhooks(w)
			wantSame(t, "stored webhook", t.webhook("acct", id), w)
		}
		off := newWebhook("acct", "to_b_off")
		off.Active, off.Resources = false, limitedTo("b")
		t.createWebhooks(off)
		for resource, n := range map[string]int{"a": 3, "b": 2, "": 1} {
			e := newEvent("acct", "of_"+resource)
			e.Resource = resource
			t.enqueue(e, n)
		}
	}
	receivers := func(t *tester, event string) map[string]driver.DeliveryState {
		states := make(map[string]driver.DeliveryState)
		for _, d := range t.deliveries("acct", event) {
			wantSame(t, "resource of a delivery of "+event, "of_"+d.Resource, event)
			states[d.WebhookID] = d.State
		}
		return states
	}

	run("an event reaches only webhooks that allow its resource", func(t *tester) {
		fill(t)
		wantSame(t, "receivers of a", receivers(t, "of_a"), map[string]driver.DeliveryState{"to_a": driver.Pending, "to_ab": driver.Pending, "to_all": driver.Pending})
		wantSame(t, "receivers of b", receivers(t, "of_b"), map[string]driver.DeliveryState{"to_ab": driver.Pending, "to_all": driver.Pending, "to_b_off": driver.Skipped})
		wantSame(t, "receivers of none", receivers(t, "of_"), map[string]driver.DeliveryState{"to_all": driver.Pending})
		for range 2 { // at first, and again
			for _, task := range t.claimAll(6) {
				wantSame(t, "resource of a loaded event", "of_"+task.Event.Resource, task.Event.ID)
				wantSame(t, "resources of a loaded webhook", task.Webhook.Resources, t.webhook("acct", task.Webhook.ID).Resources)
				t.settle(Settlement{Task: task, Effect: driver.Retry, Attempt: attemptOf(task)})
			}
		}
		found, _, err := t.store.EventByID(t.Context(), "acct", "of_b")
		t.must(err)
		wantSame(t, "resource of an event", found.Resource, "b")
	})

	run("an event for one webhook reaches it only if it allows the resource", func(t *tester) {
		fill(t)
		_, err := t.store.UpdateAlert(t.Context(), "acct", "series", func(step *driver.AlertStep) error {
			step.Events = []driver.AlertEvent{{EncodedEvent: newEvent("acct", "of_"), WebhookID: "to_a"}, {EncodedEvent: newEvent("acct", "of_x"), WebhookID: "to_all"}}
			step.Events[0].ID, step.Events[0].Resource, step.Events[1].Resource = "alert", "", "x"
			return nil
		})
		t.must(err)
		wantSame(t, "receivers of the alert", len(t.deliveries("acct", "alert")), 0)
		wantSame(t, "receivers of x", receivers(t, "of_x"), map[string]driver.DeliveryState{"to_all": driver.Pending})
	})

	run("a changed limit applies to later events", func(t *tester) {
		fill(t)
		t.updateWebhook("acct", "to_a", func(w *driver.Webhook) { w.Resources = limitedTo("b") })
		t.updateWebhook("acct", "to_ab", func(w *driver.Webhook) { w.Resources = auth.Resources{} })
		t.updateWebhook("acct", "to_all", func(w *driver.Webhook) { w.Resources = limitedTo("a") })
		e := newEvent("acct", "of_b2")
		e.Resource = "b2"
		t.enqueue(e, 1)
		wantSame(t, "receivers of b2", receivers(t, "of_b2"), map[string]driver.DeliveryState{"to_ab": driver.Pending})
		e.ID, e.Resource = "late", "b"
		t.enqueue(e, 2)
	})

	run("lists filter by resource", func(t *tester) {
		fill(t)
		for _, test := range []struct {
			to     auth.Resources
			events []string
			all    int // deliveries to to_all
		}{
			{limitedTo("a"), []string{"of_a"}, 1},
			{limitedTo("a", "b"), []string{"of_a", "of_b"}, 2},
			{limitedTo("c"), nil, 0},
			{auth.Resources{}, []string{"of_", "of_a", "of_b"}, 3},
		} {
			for _, query := range []driver.EventQuery{{}, {OldestFirst: true}, {Types: []driver.EventType{eventType}}, {WebhookID: "to_all"}} {
				query.Resources, query.Limit = test.to, 1
				ids := make(map[string]bool)
				for _, id := range t.events("acct", query) {
					ids[id] = true
				}
				want := make(map[string]bool)
				for _, id := range test.events {
					want[id] = true
				}
				wantSame(t, "events of "+test.to.String(), ids, want)
			}
			for _, query := range []driver.DeliveryQuery{{}, {States: []driver.DeliveryState{driver.Pending}}} {
				query.Resources, query.Limit = test.to, 1
				wantSame(t, "deliveries of "+test.to.String(), len(t.list("acct", "to_all", query)), test.all)
			}
		}
	})

	run("a recovery leaves events of other resources alone", func(t *tester) {
		fill(t)
		for _, task := range t.claimAll(6) {
			t.settle(Settlement{Task: task, Effect: driver.GiveUp, Attempt: attemptOf(task)})
		}
		t.updateWebhook("acct", "to_all", func(w *driver.Webhook) { w.Resources = limitedTo("a") })
		failed := t.list("acct", "to_all", driver.DeliveryQuery{Failed: true, Resources: limitedTo("b"), Limit: 1})
		wantSame(t, "failed deliveries of b", len(failed), 1)
		r := driver.Recovery{ID: "rec_1", Account: "acct", WebhookID: "to_all", States: []driver.DeliveryState{driver.Dead}, CreatedAt: some}
		t.createRecoveries(r)
		t.advance(1)
		wantSame(t, "recovered deliveries", t.recovery("acct", "rec_1").Recovered, 1)
		wantSame(t, "delivery of a", receivers(t, "of_a")["to_all"], driver.Pending)
		wantSame(t, "delivery of b", receivers(t, "of_b")["to_all"], driver.Dead)
		wantSame(t, "delivery of none", receivers(t, "of_")["to_all"], driver.Dead)
	})
}

// limitedTo returns the Resources with these names.
func limitedTo(names ...string) auth.Resources {
	r, err := auth.ParseResources(names)
	if err != nil {
		panic(err)
	}
	return r
}
