package storetest

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
)

func settle(run runner) {
	test := fed(run)

	change := func(id string, version uint64, health driver.WebhookHealth, list ...audit.Entry) driver.HealthChange {
		return driver.HealthChange{Account: "acct", WebhookID: id, Version: version, Health: health, AuditEntries: list}
	}

	test("an outcome settles the delivery or makes it due later, and stores the attempt", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"))
		for outcome, state := range map[driver.Effect]driver.DeliveryState{
			driver.Retry: driver.Pending, driver.Deliver: driver.Delivered, driver.GiveUp: driver.Dead,
		} {
			ref := f.only("acct", string(state))
			first, second := result(ref, 1, driver.Retry), result(ref, 2, outcome)
			f.record(first)
			f.record(second)
			d := f.delivery("acct", string(state))
			wantSame(f.tester, "State", d.State, state)
			wantSame(f.tester, "Attempts", d.Attempts, []driver.Attempt{first.Attempt, second.Attempt})
			if state == driver.Pending {
				f.wantDueNow(d.NextAttemptAt.Add(-time.Hour))
			}
		}
	})

	test("each attempt number is stored once: a repeated call does nothing", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"), newWebhook("acct", "c"))
		refs := f.published(newEvent("acct", "event"), 3)
		results := []driver.AttemptResult{
			result(refs["a"], 1, driver.Retry), result(refs["b"], 1, driver.Deliver), result(refs["c"], 1, driver.GiveUp),
		}
		f.record(results...)
		before := f.deliveries("acct", "event")
		for range 2 {
			f.wantSettled(results, nil, driver.Settled{Stale: []int{0, 1, 2}})
			wantSame(f.tester, "EventDeliveries", f.deliveries("acct", "event"), before)
		}
		f.record(result(refs["a"], 2, driver.Retry))
		late := result(refs["a"], 1, driver.Deliver)
		f.wantSettled([]driver.AttemptResult{late}, nil, driver.Settled{Stale: []int{0}})
		wantSame(f.tester, "State", f.deliveries("acct", "event")[0].State, driver.Pending)
	})

	test("an attempt number may be skipped", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"))
		ref := f.only("acct", "event")
		f.record(result(ref, 3, driver.Retry))
		wantSame(f.tester, "Attempts", f.wantState("the delivery", ref, driver.Ready).Attempts, 3)
		f.wantSettled([]driver.AttemptResult{result(ref, 2, driver.Deliver)}, nil, driver.Settled{Stale: []int{0}})
		f.record(result(ref, 4, driver.Deliver))
	})

	test("of concurrent results with the same number one counts", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"))
		for round := range 5 {
			ref := f.only("acct", numbered("event", round))
			var counted atomic.Int32
			inParallel(6, func(i int) {
				outcome := []driver.Effect{driver.Deliver, driver.GiveUp, driver.Retry}[i%3]
				settled, err := f.source.Settle(f.Context(), []driver.AttemptResult{result(ref, 1, outcome)}, nil)
				f.wantError("Settle", err, nil)
				if len(settled.Stale) == 0 {
					counted.Add(1)
				}
			})
			wantSame(f.tester, "results that counted", counted.Load(), 1)
			wantSame(f.tester, "number of attempts", len(f.delivery("acct", numbered("event", round)).Attempts), 1)
		}
	})

	test("Stale: results of deliveries that are not pending; the others are stored", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"), newWebhook("deleted", "deleted"), newWebhook("erased", "erased"))
		settled, first, second := f.only("acct", "settled"), f.only("acct", "first"), f.only("acct", "second")
		deleted, erased := f.only("deleted", "event"), f.only("erased", "event")
		f.record(result(settled, 1, driver.GiveUp))
		f.must(f.store.DeleteWebhook(f.Context(), "deleted", "deleted", nil, audit.Entry{}))
		f.erase("erased")
		f.wantSettled([]driver.AttemptResult{
			result(settled, 2, driver.Deliver), result(first, 1, driver.Deliver), result(deleted, 1, driver.Deliver),
			result(driver.DeliveryRef{WebhookID: "webhook", Number: 1 << 40}, 1, driver.Deliver), result(erased, 1, driver.Retry),
			result(driver.DeliveryRef{WebhookID: "nobody", Number: first.Number}, 1, driver.Retry), result(second, 1, driver.Deliver),
		}, nil, driver.Settled{Stale: []int{0, 2, 3, 4, 5}})
		wantSame(f.tester, "State", f.delivery("acct", "settled").State, driver.Dead)
		for _, id := range []string{"first", "second"} {
			wantSame(f.tester, "State", f.delivery("acct", id).State, driver.Delivered)
		}
	})

	test("Stale: deliveries ended by Purge", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"))
		ref := f.only("acct", "event")
		before := f.delivery("acct", "event")
		f.purge(driver.Purge{Payloads: f.border()})
		f.wantSettled([]driver.AttemptResult{result(ref, 1, driver.Deliver)}, nil, driver.Settled{Stale: []int{0}})
		f.wantPurged(before)
	})

	test("a result counts although the webhook was disabled or put on hold meanwhile", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"))
		first, second := f.only("acct", "first"), f.only("acct", "second")
		f.setActive("acct", "webhook", false)
		f.record(result(first, 1, driver.Deliver))
		f.updateWebhook("acct", "webhook", func(w *driver.Webhook) { w.Active, w.Held = true, true })
		f.record(result(second, 1, driver.Retry))
		wantSame(f.tester, "State", f.delivery("acct", "first").State, driver.Delivered)
		wantSame(f.tester, "number of attempts", len(f.delivery("acct", "second").Attempts), 1)
	})

	test("a redelivery stays pending when the result before it is repeated", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"))
		ref := f.only("acct", "event")
		f.record(result(ref, 1, driver.Deliver))
		f.must(f.store.Redeliver(f.Context(), "acct", "webhook", "event", audit.Entry{}))
		f.wantSettled([]driver.AttemptResult{result(ref, 1, driver.Deliver)}, nil, driver.Settled{Stale: []int{0}}) // already stored
		wantSame(f.tester, "Attempts", f.wantState("the delivery", ref, driver.Ready).Attempts, 1)
	})

	test("stores every field of the health with its audit entries, and no other field of the webhook", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"))
		for i, health := range []driver.WebhookHealth{
			{Active: true, ProvenAt: some},
			{Active: true, FailingSince: some, FailingEvent: "event", FailedAgain: true, WarnedAt: at(5), ProvenAt: some},
			{OffReason: driver.OffFailing, OffAt: at(9), FailingSince: some},
			{Active: true},
		} {
			want := f.webhook("acct", "webhook")
			stored := []audit.Entry{newAuditEntry("acct", numbered("a", i)), newAuditEntry("acct", numbered("b", i))}
			f.wantSettled(nil, []driver.HealthChange{change("webhook", want.Version, health, stored...)}, driver.Settled{})
			got := f.webhook("acct", "webhook")
			wantSame(f.tester, "Version", got.Version, want.Version+1)
			want.WebhookHealth = health
			wantSame(f.tester, "WebhookByID", got, want)
			for _, n := range stored {
				wantSame(f.tester, "audit entry "+n.ID+" is stored", f.hasAuditEntry("acct", n.ID), true)
			}
		}
	})

	test("lists webhooks by the stored health", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "failing"), newWebhook("acct", "off"))
		f.wantSettled(nil, []driver.HealthChange{
			change("failing", 1, driver.WebhookHealth{Active: true, FailingSince: some, FailingEvent: "event", FailedAgain: true}),
			change("off", 1, driver.WebhookHealth{OffReason: driver.OffGone}),
		}, driver.Settled{})
		wantListed := func(failing, off []string) {
			f.Helper()
			ids := func(list []driver.Webhook, err error) (ids []string) {
				f.must(err)
				for _, w := range list {
					ids = append(ids, w.ID)
				}
				return ids
			}
			wantSame(f.tester, "FailingWebhooks", ids(f.store.FailingWebhooks(f.Context(), some, driver.ListQuery{Limit: 9})), failing)
			wantSame(f.tester, "OffWebhooks", ids(f.store.OffWebhooks(f.Context(), driver.ListQuery{Limit: 9})), off)
		}
		wantListed([]string{"failing"}, []string{"off"})
		f.wantSettled(nil, []driver.HealthChange{
			change("failing", 2, driver.WebhookHealth{Active: true}), change("off", 2, driver.WebhookHealth{Active: true}),
		}, driver.Settled{})
		wantListed(nil, nil)
	})

	test("Conflicts: other versions and unknown webhooks; results are stored nevertheless", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"), newWebhook("acct", "deleted"), newWebhook("other", "foreign"))
		ref := f.published(newEvent("acct", "event"), 2)["webhook"]
		renamed := f.updateWebhook("acct", "webhook", func(w *driver.Webhook) { w.URL = "https://example.org/" })
		f.must(f.store.DeleteWebhook(f.Context(), "acct", "deleted", nil, audit.Entry{}))
		off := driver.WebhookHealth{OffReason: driver.OffGone}
		f.wantSettled([]driver.AttemptResult{result(ref, 1, driver.GiveUp)}, []driver.HealthChange{
			change("webhook", 1, off, newAuditEntry("acct", "older")),
			change("webhook", 3, off, newAuditEntry("acct", "newer")),
			change("deleted", 1, off, newAuditEntry("acct", "deleted")),
			change("unknown", 1, off, newAuditEntry("acct", "unknown")),
			change("foreign", 1, off, newAuditEntry("acct", "foreign")),
			change("webhook", 0, off, newAuditEntry("acct", "none")),
		}, driver.Settled{Conflicts: []int{0, 1, 2, 3, 4, 5}})
		wantSame(f.tester, "WebhookByID", f.webhook("acct", "webhook"), renamed)
		wantSame(f.tester, "Version", f.webhook("acct", "webhook").Version, 2)
		wantSame(f.tester, "WebhookByID of another account", f.webhook("other", "foreign").Active, true)
		wantSame(f.tester, "audit", f.entryIDs("acct", audit.Query{}), nil)
		wantSame(f.tester, "State", f.deliveries("acct", "event")[0].State, driver.Dead)
	})

	test("both lists of indexes are in ascending order", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"))
		refs := f.published(newEvent("acct", "event"), 2)
		f.wantSettled([]driver.AttemptResult{
			result(refs["a"], 1, driver.Deliver), result(driver.DeliveryRef{WebhookID: "b", Number: 1 << 40}, 1, driver.Retry),
			result(refs["b"], 1, driver.Deliver), result(driver.DeliveryRef{WebhookID: "a", Number: 1 << 40}, 1, driver.Retry),
		}, []driver.HealthChange{
			change("b", 7, driver.WebhookHealth{}), change("a", 1, driver.WebhookHealth{Active: true, ProvenAt: some}),
			change("a", 7, driver.WebhookHealth{}), change("b", 1, driver.WebhookHealth{Active: true, ProvenAt: at(1)}),
		}, driver.Settled{Stale: []int{1, 3}, Conflicts: []int{0, 2}})
		wantSame(f.tester, "ProvenAt", []time.Time{f.webhook("acct", "a").ProvenAt, f.webhook("acct", "b").ProvenAt}, []time.Time{some, at(1)})
	})

	test("a person's change is never overwritten, and no change of health is lost", func(f *feed) {
		const each = 30
		f.createWebhooks(newWebhook("acct", "webhook"))
		var conflicts atomic.Int32
		inParallel(4, func(i int) {
			for range each {
				if i%2 == 0 {
					_, err := f.store.UpdateWebhook(f.Context(), "acct", "webhook", func(w *driver.Webhook, _ *audit.Entry) error {
						w.Threshold++
						return nil
					})
					f.wantError("UpdateWebhook", err, nil)
					continue
				}
				for counts := false; !counts; {
					w, err := f.store.WebhookByID(f.Context(), "acct", "webhook")
					f.wantError("WebhookByID", err, nil)
					w.ProvenAt = w.ProvenAt.Add(time.Second)
					settled, err := f.source.Settle(f.Context(), nil, []driver.HealthChange{change("webhook", w.Version, w.WebhookHealth)})
					f.wantError("Settle", err, nil)
					if counts = err != nil || len(settled.Conflicts) == 0; !counts {
						conflicts.Add(1)
					}
				}
			}
		})
		f.Logf("%d conflicts", conflicts.Load())
		w := f.webhook("acct", "webhook")
		wantSame(f.tester, "changes by persons", w.Threshold, newWebhook("acct", "").Threshold+2*each)
		wantSame(f.tester, "changes of health", w.ProvenAt.Sub(time.Time{}), 2*each*time.Second)
		wantSame(f.tester, "Version", w.Version, 1+4*each)
	})

	test("accepts empty lists", func(f *feed) { f.wantSettled(nil, nil, driver.Settled{}) })

	test("does nothing with an ended context and on a closed store", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"))
		ref := f.only("acct", "event")
		ended, cancel := context.WithCancel(f.Context())
		cancel()
		off := []driver.HealthChange{change("webhook", 1, driver.WebhookHealth{}, newAuditEntry("acct", "notice"))}
		_, err := f.source.Settle(ended, []driver.AttemptResult{result(ref, 1, driver.Deliver)}, off)
		f.wantError("Settle", err, context.Canceled)
		wantSame(f.tester, "State", f.delivery("acct", "event").State, driver.Pending)
		wantSame(f.tester, "Active", f.webhook("acct", "webhook").Active, true)
		wantSame(f.tester, "audit", f.entryIDs("acct", audit.Query{}), nil)
		f.end()
		f.must(f.store.Close())
		_, err = f.source.Settle(f.Context(), []driver.AttemptResult{result(ref, 1, driver.Deliver)}, off)
		f.wantError("Settle", err, store.ErrClosed)
	})
}
