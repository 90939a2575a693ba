package storetest

import (
	"context"
	"time"

	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/webhooks"
)

// load tests Load.
func load(run runner) {
	test := fed(run)

	test("Ready: the event, the webhook as it is, and what was attempted", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"))
		ref := f.only("acct", "event")
		wantReady := func(attempts, before int, in time.Duration) {
			f.Helper()
			got := f.wantState("event", ref, webhooks.Ready)
			wantSame(f.tester, "Webhook", *got.Webhook, f.webhook("acct", "webhook"))
			wantSame(f.tester, "Webhook.Version", got.Webhook.Version, f.webhook("acct", "webhook").Version)
			wantSame(f.tester, "Event", got.Event, newEvent("acct", "event"))
			wantSame(f.tester, "Attempts and Before", []int{got.Attempts, got.Before}, []int{attempts, before})
			f.wantDueNow(got.Due.Add(-in))
			f.wantError("Err", got.Err, nil)
			if got.Age < 0 || got.Age > time.Minute {
				f.Errorf("Age = %v, want that of an event published now", got.Age)
			}
		}
		wantReady(0, 0, 0)
		f.updateWebhook("acct", "webhook", func(w *webhooks.Webhook) { w.URL = "https://example.org/" })
		wantReady(0, 0, 0)
		f.record(result(ref, 1, webhooks.Retry))
		wantReady(1, 0, time.Hour)
		f.must(f.store.Redeliver(f.Context(), "acct", "webhook", "event", notices.Notice{}))
		wantReady(1, 0, 0)
		f.record(result(ref, 2, webhooks.GiveUp))
		f.must(f.store.Redeliver(f.Context(), "acct", "webhook", "event", notices.Notice{}))
		wantReady(2, 2, 0)
	})

	test("Age goes by when the event was published", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"))
		ref := f.only("acct", "event")
		published := f.delivery("acct", "event").PublishedAt
		f.border()
		before := f.now().Sub(published)
		age := f.wantState("event", ref, webhooks.Ready).Age
		if after := f.now().Sub(published); age < before-time.Millisecond || age > after+time.Millisecond {
			f.Errorf("Age = %v, want %v to %v", age, before, after)
		}
	})

	test("in the order of refs, each as often as it is asked for, Gone what never was", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"), newWebhook("other", "c"))
		first, second := f.published(newEvent("acct", "1"), 2), f.published(newEvent("acct", "2"), 2)
		third := f.only("other", "3")
		unknown := webhooks.DeliveryRef{WebhookID: "a", Number: 1 << 40}
		foreign := webhooks.DeliveryRef{WebhookID: "c", Number: first["a"].Number}
		if foreign == third {
			foreign = webhooks.DeliveryRef{WebhookID: "c", Number: second["a"].Number}
		}
		refs := []webhooks.DeliveryRef{
			second["b"], unknown, first["a"], third, {}, {WebhookID: "nobody", Number: 1}, first["b"], second["b"], foreign, second["a"],
		}
		var got []string
		for _, d := range f.load(refs...) {
			name := "gone"
			if d.State == webhooks.Ready {
				name = d.Webhook.ID + d.Event.ID
			}
			got = append(got, name)
		}
		wantSame(f.tester, "Load", got, []string{"b2", "gone", "a1", "c3", "gone", "gone", "b1", "b2", "gone", "a2"})
		wantSame(f.tester, "Load of none", len(f.load()), 0)
	})

	test("many at once", func(f *feed) {
		const n = 1500
		f.createWebhooks(newWebhook("acct", "webhook"))
		var refs []webhooks.DeliveryRef
		for _, r := range f.added(f.during(func() { f.enqueueMany("acct", n, 1) }), n) {
			refs = append(refs, r.Ref)
		}
		left := map[string]bool{}
		for len(refs) > 0 { // a call may read a part
			list, err := f.source.Load(f.Context(), refs)
			f.must(err)
			var unread []webhooks.DeliveryRef
			for i, d := range list {
				if d.State == webhooks.Unread {
					unread = append(unread, refs[i])
				} else {
					left[d.Event.ID] = true
				}
			}
			refs = unread
		}
		wantSame(f.tester, "events", len(left), n)
	})

	test("Gone: what was settled, until it is pending again", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"))
		for i, outcome := range []webhooks.Outcome{webhooks.Deliver, webhooks.GiveUp} {
			id := numbered("event", i)
			ref := f.settled("acct", id, outcome)
			got := f.wantState("what was settled", ref, webhooks.Gone)
			wantSame(f.tester, "whether Webhook is nil", got.Webhook == nil, true)
			f.during(func() { f.must(f.store.Redeliver(f.Context(), "acct", "webhook", id, notices.Notice{})) })
			f.wantState("what was sent again", ref, webhooks.Ready)
		}
	})

	test("Gone: what a webhook was owed that was deleted, also if its id is used again", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"))
		ref := f.only("acct", "event")
		f.must(f.store.DeleteWebhook(f.Context(), "acct", "webhook", nil, notices.Notice{}))
		f.wantState("what a deleted webhook was owed", ref, webhooks.Gone)
		f.createWebhooks(newWebhook("acct", "webhook"))
		f.wantState("what it was owed before", ref, webhooks.Gone)
	})

	test("Gone: what is of an account from the first step of its erasure on", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"), newWebhook("other", "other"))
		var refs []webhooks.DeliveryRef
		for i := range 5 {
			refs = append(refs, f.only("acct", numbered("event", i)))
		}
		others := f.only("other", "event")
		for more := true; more; {
			var err error
			_, more, err = f.store.EraseAccount(f.Context(), "acct", 2)
			f.must(err)
			for _, ref := range refs {
				f.wantState("the account's", ref, webhooks.Gone)
			}
		}
		f.wantState("another's", others, webhooks.Ready)
	})

	test("Gone: what Purge has ended", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"))
		old := f.only("acct", "old")
		border := f.border()
		young := f.only("acct", "young")
		f.purge(webhooks.Purge{Payloads: border})
		f.wantState("what is past its time", old, webhooks.Gone)
		f.wantState("what is not", young, webhooks.Ready)
	})

	for name, set := range map[string]func(w *webhooks.Webhook, passive bool){
		"is off":     func(w *webhooks.Webhook, passive bool) { w.Active = !passive },
		"is on hold": func(w *webhooks.Webhook, passive bool) { w.Held = passive },
	} {
		test("Passive: as long as the webhook "+name, func(f *feed) {
			f.createWebhooks(newWebhook("acct", "webhook"))
			ref := f.only("acct", "event")
			for range 2 {
				w := f.updateWebhook("acct", "webhook", func(w *webhooks.Webhook) { set(w, true) })
				got := f.wantState("it", ref, webhooks.Passive)
				wantSame(f.tester, "Webhook", *got.Webhook, w)
				wantSame(f.tester, "Webhook.Version", got.Webhook.Version, w.Version)
				f.updateWebhook("acct", "webhook", func(w *webhooks.Webhook) { set(w, false) })
				f.wantState("it", ref, webhooks.Ready)
			}
		})
	}

	test("Passive: once Settle has turned the webhook off", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"))
		ref, left := f.only("acct", "event"), f.only("acct", "left")
		f.wantSettled([]webhooks.AttemptResult{result(ref, 1, webhooks.GiveUp)}, []webhooks.HealthChange{
			{Account: "acct", WebhookID: "webhook", Version: 1, Health: webhooks.WebhookHealth{OffReason: webhooks.OffGone}},
		}, webhooks.Settled{})
		f.wantState("what was settled", ref, webhooks.Gone)
		f.wantState("the other", left, webhooks.Passive)
	})

	test("never Ready after a call that ended it, beside other steps", func(f *feed) {
		const goroutines, each = 4, 25
		for i := range goroutines {
			f.createWebhooks(newWebhook(numbered("acct", i), numbered("webhook", i)))
		}
		refs := map[string][]webhooks.DeliveryRef{}
		for i := range goroutines {
			id := numbered("acct", i)
			for _, r := range f.added(f.during(func() { f.enqueueMany(id, each, 1) }), each) {
				refs[id] = append(refs[id], r.Ref)
			}
		}
		inParallel(goroutines, func(i int) {
			for _, ref := range refs[numbered("acct", i)] {
				settled, err := f.source.Settle(f.Context(), []webhooks.AttemptResult{result(ref, 1, webhooks.Deliver)}, nil)
				f.wantError("Settle", err, nil)
				list, err := f.source.Load(f.Context(), []webhooks.DeliveryRef{ref})
				f.wantError("Load", err, nil)
				if err != nil || len(settled.Stale) > 0 || list[0].State == webhooks.Ready {
					f.Errorf("Load of what was settled = %+v", list)
				}
			}
		})
	})

	test("an ended context, and a closed store", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"))
		ref := f.only("acct", "event")
		ended, cancel := context.WithCancel(f.Context())
		cancel()
		_, err := f.source.Load(ended, []webhooks.DeliveryRef{ref})
		f.wantError("Load", err, context.Canceled)
		f.end()
		f.must(f.store.Close())
		_, err = f.source.Load(f.Context(), []webhooks.DeliveryRef{ref})
		f.wantError("Load", err, store.ErrClosed)
	})
}
