package storetest

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/webhooks"
)

// keepState returns a change that sets State.
func keepState(state string) func(*webhooks.AlertStep) error {
	return func(step *webhooks.AlertStep) error {
		step.State = []byte(state)
		return nil
	}
}

// updateAlert makes a step and returns its number of deliveries.
func (t *tester) updateAlert(account string, metric webhooks.Metric, change func(*webhooks.AlertStep) error) int {
	t.Helper()
	deliveries, err := t.store.UpdateAlert(t.Context(), account, metric, change)
	t.must(err)
	return deliveries
}

// alert returns the state of an alert.
func (t *tester) alert(account string, metric webhooks.Metric) (state string) {
	t.Helper()
	t.updateAlert(account, metric, func(step *webhooks.AlertStep) error {
		state = string(step.State)
		return nil
	})
	return state
}

// wantDue checks which accounts have a due balance alert.
func (t *tester) wantDue(want ...string) {
	t.Helper()
	accounts, err := t.store.DueAlerts(t.Context(), 99)
	t.must(err)
	wantSame(t, "DueAlerts", slices.Sorted(slices.Values(accounts)), want)
}

func updateAlert(run runner) {
	run("stores State as change leaves it", func(t *tester) {
		wantSame(t, "State at first", t.alert("acct", webhooks.MetricBalance), "")
		for _, state := range []string{"a", "\x00\xff", long("state", 1<<20), "b", "b", "", "", "c"} {
			t.updateAlert("acct", webhooks.MetricBalance, keepState(state))
			wantSame(t, "State", t.alert("acct", webhooks.MetricBalance), state)
		}
	})

	run("keeps accounts and metrics apart", func(t *tester) {
		type name struct{ account, metric string }
		want := map[name]string{}
		for i, odd := range oddStrings {
			for j, n := range []name{{odd, "metric"}, {"acct", odd}, {odd + "m", "etric"}} {
				want[n] = strconv.Itoa(3*i + j)
				t.updateAlert(n.account, webhooks.Metric(n.metric), keepState(want[n]))
			}
		}
		for n, state := range want {
			wantSame(t, "State of "+strconv.Quote(n.account+", "+n.metric), t.alert(n.account, webhooks.Metric(n.metric)), state)
		}
	})

	run("copies State in and out", func(t *tester) {
		state := []byte("state")
		t.updateAlert("acct", "metric", func(step *webhooks.AlertStep) error { step.State = state; return nil })
		state[0] = 'x'
		wantSame(t, "State", t.alert("acct", "metric"), "state")
	})

	run("returns the error of change and stores nothing", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.updateAlert("acct", "metric", keepState("before"))
		no := errors.New("no")
		for range 2 {
			deliveries, err := t.store.UpdateAlert(t.Context(), "acct", "metric", func(step *webhooks.AlertStep) error {
				step.State = []byte("after")
				step.Webhooks()
				step.Events = []webhooks.AlertEvent{{EncodedEvent: newEvent("acct", "event")}}
				return no
			})
			t.wantError("UpdateAlert", err, no)
			wantSame(t, "deliveries", deliveries, 0)
			_, err = t.store.UpdateAlert(t.Context(), "acct", "metric", func(*webhooks.AlertStep) error { return no })
			t.wantError("UpdateAlert that changes nothing", err, no)
		}
		wantSame(t, "State", t.alert("acct", "metric"), "before")
		_, err := t.store.EventDeliveries(t.Context(), "acct", "event")
		t.wantError("EventDeliveries", err, webhooks.ErrNotFound)
	})

	run("passes the account's webhooks to change, in ascending order", func(t *tester) {
		var got []webhooks.Webhook
		look := func(step *webhooks.AlertStep) error {
			got = step.Webhooks()
			return nil
		}
		t.updateAlert("acct", "metric", look)
		wantSame(t, "no webhooks", got, nil)
		a, b, off := newWebhook("acct", "a"), newWebhook("acct", "b"), newWebhook("acct", "c")
		off.Active, off.Events = false, []webhooks.EventType{webhooks.TypeFilesExpiring}
		t.createWebhooks(off, newWebhook("acc", "d"), b, a, newWebhook("acct2", "e"))
		t.updateAlert("acct", "metric", look)
		wantSame(t, "Webhooks", got, []webhooks.Webhook{a, b, off})
		got[0].Events[0] = "changed"
		t.updateAlert("acct", "metric", look)
		wantSame(t, "Webhooks", got, []webhooks.Webhook{a, b, off})
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "b", nil, audit.Entry{}))
		a = t.updateWebhook("acct", "a", func(w *webhooks.Webhook) { w.BalanceThreshold = 7 })
		t.updateAlert("acct", "metric", func(step *webhooks.AlertStep) error {
			step.State = []byte("new")
			return look(step)
		})
		wantSame(t, "Webhooks", got, []webhooks.Webhook{a, off})
	})
}

// alertEvents tests the events of UpdateAlert.
func alertEvents(run runner) {
	fire := func(state string, events ...webhooks.AlertEvent) func(*webhooks.AlertStep) error {
		return func(step *webhooks.AlertStep) error {
			step.State, step.Events = []byte(state), events
			return nil
		}
	}
	event := func(id, webhook string) webhooks.AlertEvent {
		return webhooks.AlertEvent{EncodedEvent: newEvent("acct", id), WebhookID: webhook}
	}
	states := func(t *tester, id string) map[string]webhooks.DeliveryState {
		t.Helper()
		states := map[string]webhooks.DeliveryState{}
		for _, d := range t.deliveries("acct", id) {
			states[d.WebhookID] = d.State
		}
		return states
	}

	run("stores each event like Enqueue, in order", func(t *tester) {
		off, unsubscribed := newWebhook("acct", "off"), newWebhook("acct", "unsubscribed")
		off.Active, unsubscribed.Events = false, []webhooks.EventType{webhooks.TypeFilesExpiring}
		t.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"), off, unsubscribed, newWebhook("other", "other"))
		wantSame(t, "deliveries", t.updateAlert("acct", "metric", fire("state", event("1", ""), event("2", ""))), 4)
		wantSame(t, "State", t.alert("acct", "metric"), "state")
		for _, id := range []string{"1", "2"} {
			wantSame(t, "states", states(t, id), map[string]webhooks.DeliveryState{"a": webhooks.Pending, "b": webhooks.Pending, "off": webhooks.Skipped})
		}
		var order []string
		for _, task := range t.claimAll(4) {
			wantSame(t, "Task.Event", task.Event, newEvent("acct", task.Event.ID))
			if task.Webhook.ID == "a" {
				order = append(order, task.Event.ID)
			}
		}
		wantSame(t, "order", order, []string{"1", "2"})
		listed := []string{}
		for _, d := range t.list("acct", "b", webhooks.DeliveryQuery{}) {
			listed = append(listed, d.EventID)
		}
		wantSame(t, "ListDeliveries", listed, []string{"2", "1"})
	})

	run("delivers an event with a WebhookID only to that webhook", func(t *tester) {
		off, unsubscribed := newWebhook("acct", "off"), newWebhook("acct", "unsubscribed")
		off.Active, unsubscribed.Events = false, []webhooks.EventType{webhooks.TypeFilesExpiring}
		t.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"), off, unsubscribed, newWebhook("other", "other"))
		for webhook, want := range map[string]map[string]webhooks.DeliveryState{
			"b":            {"b": webhooks.Pending},
			"off":          {"off": webhooks.Skipped},
			"unsubscribed": {}, "other": {}, "gone": {},
		} {
			id := "for " + webhook
			wantSame(t, "deliveries", t.updateAlert("acct", "metric", fire("state", event(id, webhook))), strings.Count(webhook, "b")*len(want))
			wantSame(t, "states "+id, states(t, id), want)
		}
		wantSame(t, "Task.Webhook.ID", t.claimAll(1)[0].Webhook.ID, "b")
	})

	run("stores events even if State is unchanged", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"))
		for _, id := range []string{"1", "2"} {
			wantSame(t, "deliveries", t.updateAlert("acct", "metric", fire("state", event(id, ""))), 1)
		}
		wantSame(t, "deliveries", t.updateAlert("acct", "nothing is kept", fire("", event("3", ""))), 1)
		t.claimAll(3)
	})

	run("does not store an event with a known ID again", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"))
		t.enqueue(newEvent("acct", "1"), 1)
		wantSame(t, "deliveries", t.updateAlert("acct", "metric", fire("state", event("1", ""), event("2", ""), event("2", ""))), 1)
		t.enqueue(newEvent("acct", "2"), 1)
		wantSame(t, "State", t.alert("acct", "metric"), "state")
		t.claimAll(2)
	})
}

// deferrableAlerts tests AlertStep.Deferrable.
func deferrableAlerts(run runner) {
	deferrable := func(state string) func(*webhooks.AlertStep) error {
		return func(step *webhooks.AlertStep) error {
			step.State, step.Deferrable = []byte(state), true
			return nil
		}
	}

	run("passes a deferred State to the next step", func(t *tester) {
		t.updateAlert("acct", webhooks.MetricBalance, deferrable("deferred"))
		wantSame(t, "State", t.alert("acct", webhooks.MetricBalance), "deferred")
		t.updateAlert("acct", webhooks.MetricBalance, keepState("written"))
		for _, state := range []string{"deferred", "deferred again", "deferred again", "written"} {
			t.updateAlert("acct", webhooks.MetricBalance, deferrable(state))
			wantSame(t, "State", t.alert("acct", webhooks.MetricBalance), state)
		}
		t.updateAlert("acct", webhooks.MetricBalance, deferrable("deferred once more"))
		t.createWebhooks(newWebhook("acct", "webhook"))
		wantSame(t, "State", t.alert("acct", webhooks.MetricBalance), "deferred once more")
		t.updateAlert("acct", webhooks.MetricBalance, deferrable("deferred"))
		t.updateAlert("acct", webhooks.MetricBalance, func(step *webhooks.AlertStep) error {
			step.State = append(slices.Clone(step.State), " and written"...)
			return nil
		})
		wantSame(t, "State", t.alert("acct", webhooks.MetricBalance), "deferred and written")
	})

	run("many deferred states", func(t *tester) {
		const accounts = 500
		for round := range 2 {
			for i := range accounts {
				t.updateAlert(numbered("acct", i), "metric", deferrable(strconv.Itoa(i+round)))
			}
		}
		for i := range accounts {
			wantSame(t, "State", t.alert(numbered("acct", i), "metric"), strconv.Itoa(i+1))
		}
	})
}

// durableAlerts tests that alerts and deduplication keys survive a restart.
func durableAlerts(reopened func(name string, before, after func(*tester))) {
	reopened("alerts, due alerts and deduplication keys", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.updateAlert("acct", webhooks.MetricBalance, keepState("balance"))
		t.updateAlert("other", webhooks.MetricBalance, keepState("balance"))
		t.updateAlert("acct", webhooks.MetricBandwidth, keepState("bandwidth"))
		t.updateAlert("acct", "gone", keepState("gone"))
		t.updateAlert("acct", "gone", keepState(""))
		t.updateAlert("acct", "fired", func(step *webhooks.AlertStep) error {
			step.State, step.Events = []byte("fired"), []webhooks.AlertEvent{{EncodedEvent: newEvent("acct", "fired")}}
			return nil
		})
		for _, metric := range []webhooks.Metric{webhooks.MetricBandwidth, "deferred at first"} {
			t.updateAlert("acct", metric, func(step *webhooks.AlertStep) error {
				step.State, step.Deferrable = []byte("deferred"), true
				return nil
			})
		}
		t.enqueueOnce(newEvent("acct", "event"), 1, newDedupKey("notice"))
		t.createWebhooks(newWebhook("other", "another webhook"))
	}, func(t *tester) {
		t.wantDue("other")
		for metric, want := range map[webhooks.Metric]string{
			webhooks.MetricBalance: "balance", webhooks.MetricBandwidth: "deferred", "deferred at first": "deferred", "gone": "", "fired": "fired",
		} {
			wantSame(t, "State of "+string(metric), t.alert("acct", metric), want)
		}
		t.wantNew([]int{1}, newDedupKey("notice"), newDedupKey("another"))
		_, err := t.store.EnqueueOnce(t.Context(), newEvent("acct", "again"), []webhooks.DedupKey{newDedupKey("notice")})
		t.wantError("EnqueueOnce", err, webhooks.ErrExists)
		t.claimAll(2)
	})
}
