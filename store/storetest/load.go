package storetest

import (
	"context"
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
)

func load(run runner) {
	test := fed(run)

	test("Ready: returns the event, the current webhook and the attempts", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"))
		ref := f.only("acct", "event")
		wantReady := func(attempts, before int, in time.Duration) {
			f.Helper()
			got := f.wantState("event", ref, driver.Ready)
			wantSame(f.tester, "Webhook", *got.Webhook, f.webhook("acct", "webhook"))
			wantSame(f.tester, "Webhook.Version", got.Webhook.Version, f.webhook("acct", "webhook").Version)
			wantSame(f.tester, "Event", got.Event, newEvent("acct", "event"))
			wantSame(f.tester, "Attempts and Before", []int{got.Attempts, got.Before}, []int{attempts, before})
			f.wantDueNow(got.Due.Add(-in))
			f.wantError("Err", got.Err, nil)
			if got.Age < 0 || got.Age > time.Minute {
				f.Errorf("Age = %v, want the age of an event published now", got.Age)
			}
		}
		wantReady(0, 0, 0)
		f.updateWebhook("acct", "webhook", func(w *driver.Webhook) { w.URL = "https://example.org/" })
		wantReady(0, 0, 0)
		f.record(result(ref, 1, driver.Retry))
		wantReady(1, 0, time.Hour)
		f.must(f.store.Redeliver(f.Context(), "acct", "webhook", "event", audit.Entry{}))
		wantReady(1, 0, 0)
		f.record(result(ref, 2, driver.GiveUp))
		f.must(f.store.Redeliver(f.Context(), "acct", "webhook", "event", audit.Entry{}))
		wantReady(2, 2, 0)
	})

	test("Age is measured from the publication of the event", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"))
		ref := f.only("acct", "event")
		published := f.delivery("acct", "event").PublishedAt
		f.border()
		before := f.now().Sub(published)
		age := f.wantState("event", ref, driver.Ready).Age
		if after := f.now().Sub(published); age < before-time.Millisecond || age > after+time.Millisecond {
			f.Errorf("Age = %v, want %v to %v", age, before, after)
		}
	})

	test("returns results in the order of refs, also repeated ones, and Gone for unknown ones", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"), newWebhook("other", "c"))
		first, second := f.published(newEvent("acct", "1"), 2), f.published(newEvent("acct", "2"), 2)
		third := f.only("other", "3")
		unknown := driver.DeliveryRef{WebhookID: "a", Number: 1 << 40}
		foreign := driver.DeliveryRef{WebhookID: "c", Number: first["a"].Number}
		if foreign == third {
			foreign = driver.DeliveryRef{WebhookID: "c", Number: second["a"].Number}
		}
		refs := []driver.DeliveryRef{
			second["b"], unknown, first["a"], third, {}, {WebhookID: "nobody", Number: 1}, first["b"], second["b"], foreign, second["a"],
		}
		var got []string
		for _, d := range f.load(refs...) {
			name := "gone"
			if d.State == driver.Ready {
				name = d.Webhook.ID + d.Event.ID
			}
			got = append(got, name)
		}
		wantSame(f.tester, "Load", got, []string{"b2", "gone", "a1", "c3", "gone", "gone", "b1", "b2", "gone", "a2"})
		wantSame(f.tester, "Load of no deliveries", len(f.load()), 0)
	})

	test("loads many at once", func(f *feed) {
		const n = 1500
		f.createWebhooks(newWebhook("acct", "webhook"))
		var refs []driver.DeliveryRef
		for _, r := range f.added(f.during(func() { f.enqueueMany("acct", n, 1) }), n) {
			refs = append(refs, r.Ref)
		}
		left := map[string]bool{}
		for len(refs) > 0 { // one call may load only some of them
			list, err := f.source.Load(f.Context(), refs)
			f.must(err)
			var unread []driver.DeliveryRef
			for i, d := range list {
				if d.State == driver.Unread {
					unread = append(unread, refs[i])
				} else {
					left[d.Event.ID] = true
				}
			}
			refs = unread
		}
		wantSame(f.tester, "events", len(left), n)
	})

	test("Gone: settled deliveries, until they are pending again", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"))
		for i, outcome := range []driver.Effect{driver.Deliver, driver.GiveUp} {
			id := numbered("event", i)
			ref := f.settled("acct", id, outcome)
			got := f.wantState("a settled delivery", ref, driver.Gone)
			wantSame(f.tester, "Webhook is nil", got.Webhook == nil, true)
			f.during(func() { f.must(f.store.Redeliver(f.Context(), "acct", "webhook", id, audit.Entry{})) })
			f.wantState("a redelivered delivery", ref, driver.Ready)
		}
	})

	test("Gone: deliveries to a deleted webhook, even if its ID is used again", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"))
		ref := f.only("acct", "event")
		f.must(f.store.DeleteWebhook(f.Context(), "acct", "webhook", nil, audit.Entry{}))
		f.wantState("a delivery to a deleted webhook", ref, driver.Gone)
		f.createWebhooks(newWebhook("acct", "webhook"))
		f.wantState("a delivery to the former webhook", ref, driver.Gone)
	})

	test("Gone: deliveries of an account from the first step of its erasure on", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"), newWebhook("other", "other"))
		var refs []driver.DeliveryRef
		for i := range 5 {
			refs = append(refs, f.only("acct", numbered("event", i)))
		}
		others := f.only("other", "event")
		for more := true; more; {
			var err error
			_, more, err = f.store.EraseAccount(f.Context(), "acct", 2)
			f.must(err)
			for _, ref := range refs {
				f.wantState("a delivery of the account", ref, driver.Gone)
			}
		}
		f.wantState("another's", others, driver.Ready)
	})

	test("Gone: deliveries ended by Purge", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"))
		old := f.only("acct", "old")
		border := f.border()
		young := f.only("acct", "young")
		f.purge(driver.Purge{Payloads: border})
		f.wantState("an old delivery", old, driver.Gone)
		f.wantState("a young delivery", young, driver.Ready)
	})

	for name, set := range map[string]func(w *driver.Webhook, passive bool){
		"is off":     func(w *driver.Webhook, passive bool) { w.Active = !passive },
		"is on hold": func(w *driver.Webhook, passive bool) { w.Held = passive },
	} {
		test("Passive: while the webhook "+name, func(f *feed) {
			f.createWebhooks(newWebhook("acct", "webhook"))
			ref := f.only("acct", "event")
			for range 2 {
				w := f.updateWebhook("acct", "webhook", func(w *driver.Webhook) { set(w, true) })
				got := f.wantState("the delivery", ref, driver.Passive)
				wantSame(f.tester, "Webhook", *got.Webhook, w)
				wantSame(f.tester, "Webhook.Version", got.Webhook.Version, w.Version)
				f.updateWebhook("acct", "webhook", func(w *driver.Webhook) { set(w, false) })
				f.wantState("the delivery", ref, driver.Ready)
			}
		})
	}

	// The service decides when a pause ends, by its own clock.
	test("Ready: while the webhook is paused", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"))
		f.updateWebhook("acct", "webhook", func(w *driver.Webhook) { w.PausedUntil = driver.NoEnd })
		ref := f.only("acct", "event")
		got := f.wantState("the delivery", ref, driver.Ready)
		wantSame(f.tester, "Webhook.PausedUntil", got.Webhook.PausedUntil, driver.NoEnd)
	})

	test("Passive: after Settle has disabled the webhook", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"))
		ref, left := f.only("acct", "event"), f.only("acct", "left")
		f.wantSettled([]driver.AttemptResult{result(ref, 1, driver.GiveUp)}, []driver.HealthChange{
			{Account: "acct", WebhookID: "webhook", Version: 1, Health: driver.WebhookHealth{OffReason: driver.OffGone}},
		}, driver.Settled{})
		f.wantState("a settled delivery", ref, driver.Gone)
		f.wantState("the other delivery", left, driver.Passive)
	})

	test("is never Ready after a call that ended the delivery, with concurrent steps", func(f *feed) {
		const goroutines, each = 4, 25
		for i := range goroutines {
			f.createWebhooks(newWebhook(numbered("acct", i), numbered("webhook", i)))
		}
		refs := map[string][]driver.DeliveryRef{}
		for i := range goroutines {
			id := numbered("acct", i)
			for _, r := range f.added(f.during(func() { f.enqueueMany(id, each, 1) }), each) {
				refs[id] = append(refs[id], r.Ref)
			}
		}
		inParallel(goroutines, func(i int) {
			for _, ref := range refs[numbered("acct", i)] {
				settled, err := f.source.Settle(f.Context(), []driver.AttemptResult{result(ref, 1, driver.Deliver)}, nil)
				f.wantError("Settle", err, nil)
				list, err := f.source.Load(f.Context(), []driver.DeliveryRef{ref})
				f.wantError("Load", err, nil)
				if err != nil || len(settled.Stale) > 0 || list[0].State == driver.Ready {
					f.Errorf("Load of a settled delivery = %+v", list)
				}
			}
		})
	})

	test("fails with an ended context and on a closed store", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"))
		ref := f.only("acct", "event")
		ended, cancel := context.WithCancel(f.Context())
		cancel()
		_, err := f.source.Load(ended, []driver.DeliveryRef{ref})
		f.wantError("Load", err, context.Canceled)
		f.end()
		f.must(f.store.Close())
		_, err = f.source.Load(f.Context(), []driver.DeliveryRef{ref})
		f.wantError("Load", err, store.ErrClosed)
	})
}
