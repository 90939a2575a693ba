package storetest

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
)

// wantDueNow checks that a reported due time is about now.
func (f *feed) wantDueNow(due time.Time) {
	f.Helper()
	if off := time.Since(due).Abs(); off > time.Minute {
		f.Errorf("Due differs from now by %v", off)
	}
}

// wantPending compares a reported delivery with want, except for its webhook.
func (f *feed) wantPending(what string, got, want driver.PendingDelivery) {
	f.Helper()
	f.wantDueNow(got.Due)
	want.Number, want.Webhook, want.Group, want.Due = got.Number, got.Webhook, got.Group, got.Due
	wantSame(f.tester, "PendingDelivery of "+what, got, want)
}

// methods returns the method names of reports.
func methods(reports []Report) (list []string) {
	for _, r := range reports {
		list = append(list, r.Method)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func texts(reports []Report) (list []string) {
	for _, r := range reports {
		list = append(list, r.String())
	}
	return list
}

// settled publishes an event for one webhook and settles its delivery.
func (f *feed) settled(account, eventID string, outcome driver.Effect) driver.DeliveryRef {
	f.Helper()
	ref := f.only(account, eventID)
	f.record(result(ref, 1, outcome))
	return ref
}

// reportedDeliveries tests the reports of all methods that make deliveries pending.
func reportedDeliveries(run runner) {
	test := fed(run)

	test("Enqueue: one Add for each active subscribed webhook", func(f *feed) {
		off, silent, held := newWebhook("acct", "off"), newWebhook("acct", "silent"), newWebhook("acct", "held")
		off.Active, held.Held, silent.Events = false, true, silent.Events[:1]
		f.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"), off, silent, held, newWebhook("other", "foreign"))
		reports := f.during(func() { f.enqueue(newEvent("acct", "event"), 3) })
		var ids []string
		for _, r := range f.added(reports, 3) {
			ids = append(ids, r.Ref.WebhookID)
			f.wantPending(r.Ref.WebhookID, r.Pending, driver.PendingDelivery{})
			wantSame(f.tester, "Webhook", *r.Webhook, f.webhook("acct", r.Ref.WebhookID))
		}
		slices.Sort(ids)
		wantSame(f.tester, "webhooks", ids, []string{"a", "b", "held"})
		wantSame(f.tester, "methods", methods(reports), []string{"Add"})
	})

	test("EnqueueOnce", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"))
		reports := f.during(func() { f.enqueueOnce(newEvent("acct", "event"), 1, newDedupKey("a")) })
		f.wantPending("EnqueueOnce", f.added(reports, 1)[0].Pending, driver.PendingDelivery{})
		f.added(f.during(func() {
			_, err := f.store.EnqueueOnce(f.Context(), newEvent("acct", "again"), []driver.DedupKey{newDedupKey("b"), newDedupKey("a")})
			f.wantError("EnqueueOnce", err, apierr.ErrExists)
		}), 0)
	})

	test("UpdateAlert with events", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"))
		f.added(f.during(func() {
			n := f.updateAlert("acct", "series 1", func(step *driver.AlertStep) error {
				step.State = []byte("state")
				step.Events = []driver.AlertEvent{
					{EncodedEvent: newEvent("acct", "of both")}, {EncodedEvent: newEvent("acct", "of b"), WebhookID: "b"},
				}
				return nil
			})
			wantSame(f.tester, "deliveries", n, 3)
		}), 3)
	})

	for outcome, name := range map[driver.Effect]string{driver.Deliver: "delivered", driver.GiveUp: "dead"} {
		test("Redeliver of a delivery that is "+name+": an Add with First, and a Probe", func(f *feed) {
			f.createWebhooks(newWebhook("acct", "webhook"))
			ref := f.settled("acct", "event", outcome)
			for made := 1; made < 3; made++ {
				reports := f.during(func() {
					f.must(f.store.Redeliver(f.Context(), "acct", "webhook", "event", audit.Entry{}))
				})
				added := f.added(reports, 1)[0]
				wantSame(f.tester, "Ref", added.Ref, ref)
				f.wantPending(name, added.Pending, driver.PendingDelivery{Attempts: made, Before: made, First: true})
				wantSame(f.tester, "methods", methods(reports), []string{"Add", "Probe"})
				f.record(result(ref, made+1, outcome))
			}
		})
	}

	test("Redeliver of a skipped delivery: an Add with First, and a Probe", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"))
		f.setActive("acct", "webhook", false)
		f.added(f.during(func() { f.enqueue(newEvent("acct", "event"), 0) }), 0)
		f.during(func() { f.setActive("acct", "webhook", true) })
		reports := f.during(func() {
			f.must(f.store.Redeliver(f.Context(), "acct", "webhook", "event", audit.Entry{}))
		})
		f.wantPending("skipped delivery", f.added(reports, 1)[0].Pending, driver.PendingDelivery{First: true})
		wantSame(f.tester, "methods", methods(reports), []string{"Add", "Probe"})
	})

	test("Redeliver of a pending delivery: a Nudge, and a Probe", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"))
		fresh, retried := f.only("acct", "fresh"), f.only("acct", "retried")
		f.record(result(retried, 1, driver.Retry))
		for event, ref := range map[string]driver.DeliveryRef{"fresh": fresh, "retried": retried} {
			reports := f.during(func() {
				f.must(f.store.Redeliver(f.Context(), "acct", "webhook", event, newAuditEntry("acct", event)))
			})
			wantSame(f.tester, "audit entry is stored", f.hasAuditEntry("acct", event), true)
			wantSame(f.tester, "methods", methods(reports), []string{"Nudge", "Probe"})
			for _, r := range reports {
				wantSame(f.tester, "WebhookID of "+r.Method, r.Ref.WebhookID, "webhook")
				if r.Method == "Nudge" {
					wantSame(f.tester, "Ref of Nudge", r.Ref, ref)
				}
			}
			f.wantDueNow(f.wantState(event, ref, driver.Ready).Due)
		}
	})

	test("AdvanceRecovery: an Add with Recovered", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"))
		refs := map[driver.DeliveryRef]int{}
		for i := range 5 {
			refs[f.settled("acct", numbered("event", i), driver.GiveUp)]++
		}
		f.settled("acct", "delivered", driver.Deliver)
		f.createRecoveries(newRecovery("acct", "webhook", "recovery", driver.Dead))
		for _, r := range f.added(f.during(func() { f.advance(2) }), 5) {
			f.wantPending("dead delivery", r.Pending, driver.PendingDelivery{Attempts: 1, Before: 1, Recovered: true})
			wantSame(f.tester, "number of times the delivery was dead", refs[r.Ref], 1)
		}
	})

	test("AdvanceRecovery of a delivery that is due later: due now", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"))
		ref := f.only("acct", "event")
		f.record(result(ref, 1, driver.Retry))
		f.createRecoveries(newRecovery("acct", "webhook", "recovery", driver.Pending))
		added := f.added(f.during(func() { f.advance(9) }), 1)[0]
		wantSame(f.tester, "Ref", added.Ref, ref)
		wantSame(f.tester, "Attempts", added.Pending.Attempts, 1)
		f.wantDueNow(added.Pending.Due)
		f.wantDueNow(f.wantState("the delivery", ref, driver.Ready).Due)
	})

	test("Probe", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"))
		reports := f.during(func() { f.must(f.store.Probe(f.Context(), "acct", "webhook")) })
		wantSame(f.tester, "methods", methods(reports), []string{"Probe"})
		wantSame(f.tester, "WebhookID", reports[0].Ref.WebhookID, "webhook")
		wantSame(f.tester, "reports", len(f.during(func() {
			f.wantError("Probe", f.store.Probe(f.Context(), "acct", "unknown"), apierr.ErrNotFound)
		})), 0)
	})

	test("results are not reported", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"))
		var results []driver.AttemptResult
		for i, outcome := range []driver.Effect{driver.Retry, driver.Deliver, driver.GiveUp} {
			results = append(results, result(f.only("acct", numbered("event", i)), 1, outcome))
		}
		wantSame(f.tester, "reports", texts(f.during(func() { f.record(results...) })), nil)
	})

	test("failed steps are not reported", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"))
		refused := errors.New("refused")
		ended, cancel := context.WithCancel(f.Context())
		cancel()
		alert := func(then func() error) {
			_, err := f.store.UpdateAlert(f.Context(), "acct", "series 1", func(step *driver.AlertStep) error {
				step.State, step.Events = []byte("state"), []driver.AlertEvent{{EncodedEvent: newEvent("acct", "alert")}}
				return then()
			})
			if err == nil {
				f.Error("UpdateAlert = nil")
			}
		}
		update := func(then func() error) {
			_, err := f.store.UpdateWebhook(f.Context(), "acct", "webhook", func(w *driver.Webhook, _ *audit.Entry) error {
				w.Active = false
				return then()
			})
			if err == nil {
				f.Error("UpdateWebhook = nil")
			}
		}
		refuse, exit := func() error { return refused }, func() error { runtime.Goexit(); return nil }
		reports := f.during(func() {
			_, err := f.store.Enqueue(ended, newEvent("acct", "event"))
			f.wantError("Enqueue", err, context.Canceled)
			alert(refuse)
			update(refuse)
			inParallel(2, func(i int) { // the callback may end its goroutine
				if i == 0 {
					alert(exit)
				} else {
					update(exit)
				}
			})
			err = f.store.DeleteWebhook(f.Context(), "acct", "webhook", func(driver.Webhook) error { return refused }, audit.Entry{})
			f.wantError("DeleteWebhook", err, refused)
			err = f.store.Redeliver(f.Context(), "acct", "webhook", "unknown", audit.Entry{})
			f.wantError("Redeliver", err, apierr.ErrNotFound)
			f.mark("after what was refused")
		})
		wantSame(f.tester, "reports", texts(reports), nil)
	})
}
