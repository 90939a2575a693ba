package storetest

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
)

// keepState returns a change function that sets State.
func keepState(state string) func(*driver.AlertStep) error {
	return func(step *driver.AlertStep) error {
		step.State = []byte(state)
		return nil
	}
}

// updateAlert calls UpdateAlert and returns the number of deliveries.
func (t *tester) updateAlert(account string, series string, change func(*driver.AlertStep) error) int {
	t.Helper()
	deliveries, err := t.store.UpdateAlert(t.Context(), account, series, change)
	t.must(err)
	return deliveries
}

// alert returns the state of the account's series.
func (t *tester) alert(account string, series string) (state string) {
	t.Helper()
	t.updateAlert(account, series, func(step *driver.AlertStep) error {
		state = string(step.State)
		return nil
	})
	return state
}

// wantDue checks that exactly the accounts in want have a due series. No account may have more than
// one.
func (t *tester) wantDue(want ...string) {
	t.Helper()
	due, err := t.store.DueAlerts(t.Context(), 99)
	t.must(err)
	var accounts []string
	for _, series := range due {
		accounts = append(accounts, series.Account)
	}
	slices.Sort(accounts)
	wantSame(t, "accounts of DueAlerts", accounts, want)
}

func updateAlert(run runner) {
	run("stores State as change leaves it", func(t *tester) {
		wantSame(t, "State at first", t.alert("acct", "series"), "")
		for _, state := range []string{"a", "\x00\xff", long("state", 1<<20), "b", "b", "", "", "c"} {
			t.updateAlert("acct", "series", keepState(state))
			wantSame(t, "State", t.alert("acct", "series"), state)
		}
	})

	run("keeps accounts and series apart", func(t *tester) {
		type name struct{ account, series string }
		want := map[name]string{}
		for i, odd := range oddStrings {
			for j, n := range []name{{odd, "series 1"}, {"acct", odd}, {odd + "m", "etric"}} {
				want[n] = strconv.Itoa(3*i + j)
				t.updateAlert(n.account, n.series, keepState(want[n]))
			}
		}
		for n, state := range want {
			wantSame(t, "State of "+strconv.Quote(n.account+", "+n.series), t.alert(n.account, n.series), state)
		}
	})

	run("copies State in and out", func(t *tester) {
		state := []byte("state")
		t.updateAlert("acct", "series 1", func(step *driver.AlertStep) error { step.State = state; return nil })
		state[0] = 'x'
		wantSame(t, "State", t.alert("acct", "series 1"), "state")
	})

	run("returns the error of change and stores nothing", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.updateAlert("acct", "series 1", keepState("before"))
		no := errors.New("no")
		for range 2 {
			deliveries, err := t.store.UpdateAlert(t.Context(), "acct", "series 1", func(step *driver.AlertStep) error {
				step.State = []byte("after")
				step.Webhooks()
				step.Events = []driver.AlertEvent{{EncodedEvent: newEvent("acct", "event")}}
				return no
			})
			t.wantError("UpdateAlert", err, no)
			wantSame(t, "deliveries", deliveries, 0)
			_, err = t.store.UpdateAlert(t.Context(), "acct", "series 1", func(*driver.AlertStep) error { return no })
			t.wantError("UpdateAlert that changes nothing", err, no)
		}
		wantSame(t, "State", t.alert("acct", "series 1"), "before")
		_, err := t.store.EventDeliveries(t.Context(), "acct", "event")
		t.wantError("EventDeliveries", err, apierr.ErrNotFound)
	})

	run("passes the account's webhooks to change, in ascending order", func(t *tester) {
		var got []driver.Webhook
		look := func(step *driver.AlertStep) error {
			got = step.Webhooks()
			return nil
		}
		t.updateAlert("acct", "series 1", look)
		wantSame(t, "no webhooks", got, nil)
		a, b, off := newWebhook("acct", "a"), newWebhook("acct", "b"), newWebhook("acct", "c")
		off.Active, off.Events = false, []driver.EventType{otherType}
		t.createWebhooks(off, newWebhook("acc", "d"), b, a, newWebhook("acct2", "e"))
		t.updateAlert("acct", "series 1", look)
		wantSame(t, "Webhooks", got, []driver.Webhook{a, b, off})
		got[0].Events[0] = "changed"
		t.updateAlert("acct", "series 1", look)
		wantSame(t, "Webhooks", got, []driver.Webhook{a, b, off})
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "b", nil, audit.Entry{}))
		a = t.updateWebhook("acct", "a", func(w *driver.Webhook) { w.Threshold = 7 })
		t.updateAlert("acct", "series 1", func(step *driver.AlertStep) error {
			step.State = []byte("new")
			return look(step)
		})
		wantSame(t, "Webhooks", got, []driver.Webhook{a, off})
	})
}

// alertEvents tests how UpdateAlert stores events.
func alertEvents(run runner) {
	fire := func(state string, events ...driver.AlertEvent) func(*driver.AlertStep) error {
		return func(step *driver.AlertStep) error {
			step.State, step.Events = []byte(state), events
			return nil
		}
	}
	event := func(id, webhook string) driver.AlertEvent {
		return driver.AlertEvent{EncodedEvent: newEvent("acct", id), WebhookID: webhook}
	}
	states := func(t *tester, id string) map[string]driver.DeliveryState {
		t.Helper()
		states := map[string]driver.DeliveryState{}
		for _, d := range t.deliveries("acct", id) {
			states[d.WebhookID] = d.State
		}
		return states
	}

	run("stores each event like Enqueue, in order", func(t *tester) {
		off, unsubscribed := newWebhook("acct", "off"), newWebhook("acct", "unsubscribed")
		off.Active, unsubscribed.Events = false, []driver.EventType{otherType}
		t.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"), off, unsubscribed, newWebhook("other", "other"))
		wantSame(t, "deliveries", t.updateAlert("acct", "series 1", fire("state", event("1", ""), event("2", ""))), 4)
		wantSame(t, "State", t.alert("acct", "series 1"), "state")
		for _, id := range []string{"1", "2"} {
			wantSame(t, "states", states(t, id), map[string]driver.DeliveryState{"a": driver.Pending, "b": driver.Pending, "off": driver.Skipped})
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
		for _, d := range t.list("acct", "b", driver.DeliveryQuery{}) {
			listed = append(listed, d.EventID)
		}
		wantSame(t, "ListDeliveries", listed, []string{"2", "1"})
	})

	run("delivers an event with a WebhookID only to that webhook", func(t *tester) {
		off, unsubscribed := newWebhook("acct", "off"), newWebhook("acct", "unsubscribed")
		off.Active, unsubscribed.Events = false, []driver.EventType{otherType}
		t.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"), off, unsubscribed, newWebhook("other", "other"))
		for webhook, want := range map[string]map[string]driver.DeliveryState{
			"b":            {"b": driver.Pending},
			"off":          {"off": driver.Skipped},
			"unsubscribed": {}, "other": {}, "gone": {},
		} {
			id := "for " + webhook
			wantSame(t, "deliveries", t.updateAlert("acct", "series 1", fire("state", event(id, webhook))), strings.Count(webhook, "b")*len(want))
			wantSame(t, "states "+id, states(t, id), want)
		}
		wantSame(t, "Task.Webhook.ID", t.claimAll(1)[0].Webhook.ID, "b")
	})

	run("stores events even if State is unchanged", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"))
		for _, id := range []string{"1", "2"} {
			wantSame(t, "deliveries", t.updateAlert("acct", "series 1", fire("state", event(id, ""))), 1)
		}
		wantSame(t, "deliveries", t.updateAlert("acct", "nothing is kept", fire("", event("3", ""))), 1)
		t.claimAll(3)
	})

	run("does not store an event with a known ID again", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"))
		t.enqueue(newEvent("acct", "1"), 1)
		wantSame(t, "deliveries", t.updateAlert("acct", "series 1", fire("state", event("1", ""), event("2", ""), event("2", ""))), 1)
		t.enqueue(newEvent("acct", "2"), 1)
		wantSame(t, "State", t.alert("acct", "series 1"), "state")
		t.claimAll(2)
	})
}

// deferrableAlerts tests AlertStep.Deferrable.
func deferrableAlerts(run runner) {
	deferrable := func(state string) func(*driver.AlertStep) error {
		return func(step *driver.AlertStep) error {
			step.State, step.Deferrable = []byte(state), true
			return nil
		}
	}

	run("passes a deferred State to the next step", func(t *tester) {
		t.updateAlert("acct", "series", deferrable("deferred"))
		wantSame(t, "State", t.alert("acct", "series"), "deferred")
		t.updateAlert("acct", "series", keepState("written"))
		for _, state := range []string{"deferred", "deferred again", "deferred again", "written"} {
			t.updateAlert("acct", "series", deferrable(state))
			wantSame(t, "State", t.alert("acct", "series"), state)
		}
		t.updateAlert("acct", "series", deferrable("deferred once more"))
		t.createWebhooks(newWebhook("acct", "webhook"))
		wantSame(t, "State", t.alert("acct", "series"), "deferred once more")
		t.updateAlert("acct", "series", deferrable("deferred"))
		t.updateAlert("acct", "series", func(step *driver.AlertStep) error {
			step.State = append(slices.Clone(step.State), " and written"...)
			return nil
		})
		wantSame(t, "State", t.alert("acct", "series"), "deferred and written")
	})

	run("many deferred states", func(t *tester) {
		const accounts = 500
		for round := range 2 {
			for i := range accounts {
				t.updateAlert(numbered("acct", i), "series 1", deferrable(strconv.Itoa(i+round)))
			}
		}
		for i := range accounts {
			wantSame(t, "State", t.alert(numbered("acct", i), "series 1"), strconv.Itoa(i+1))
		}
	})
}

// durableAlerts tests that alerts and deduplication keys survive a restart.
func durableAlerts(reopened func(name string, before, after func(*tester))) {
	reopened("alerts, due alerts and deduplication keys", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.updateAlert("acct", "series", keepState("balance"))
		t.updateAlert("other", "series", keepState("balance"))
		t.updateAlert("acct", "another series", keepState("bandwidth"))
		t.updateAlert("acct", "gone", keepState("gone"))
		t.updateAlert("acct", "gone", keepState(""))
		t.updateAlert("acct", "fired", func(step *driver.AlertStep) error {
			step.State, step.Events = []byte("fired"), []driver.AlertEvent{{EncodedEvent: newEvent("acct", "fired")}}
			return nil
		})
		for _, series := range []string{"another series", "deferred at first"} {
			t.updateAlert("acct", series, func(step *driver.AlertStep) error {
				step.State, step.Deferrable = []byte("deferred"), true
				return nil
			})
		}
		t.enqueueOnce(newEvent("acct", "event"), 1, newDedupKey("notice"))
		t.createWebhooks(newWebhook("other", "another webhook"))
	}, func(t *tester) {
		t.wantDue("other")
		for series, want := range map[string]string{
			"series": "balance", "another series": "deferred", "deferred at first": "deferred", "gone": "", "fired": "fired",
		} {
			wantSame(t, "State of "+series, t.alert("acct", series), want)
		}
		t.wantNew([]int{1}, newDedupKey("notice"), newDedupKey("another"))
		_, err := t.store.EnqueueOnce(t.Context(), newEvent("acct", "again"), []driver.DedupKey{newDedupKey("notice")})
		t.wantError("EnqueueOnce", err, apierr.ErrExists)
		t.claimAll(2)
	})
}
