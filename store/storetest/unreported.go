package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
)

func unreported(run runner) {
	run = ofDeliveries(run)

	want := func(t *tester, webhookID string, pending, held int) (got driver.Backlog) {
		t.Helper()
		got, err := t.store.(driver.Deliveries).Unreported(t.Context(), webhookID)
		t.must(err)
		wantSame(t, "Pending of "+webhookID, got.Pending, pending)
		wantSame(t, "Held of "+webhookID, got.Held, held)
		return got
	}

	run("counts all pending deliveries without Deliver, and none during Deliver", func(t *tester) {
		held := newWebhook("other", "held")
		held.Held = true
		t.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"), held)
		want(t, "", 0, 1)
		t.enqueueMany("acct", 5, 2)
		t.enqueueMany("other", 2, 1)
		t.setActive("acct", "b", false)
		t.enqueue(newEvent("acct", "skipped"), 1)
		wantAll := func(a int) {
			t.Helper()
			want(t, "", a+7, 1)
			want(t, "a", a, 0)
			want(t, "b", 5, 0)
			want(t, "held", 2, 0)
			want(t, "unknown", 0, 0)
		}
		wantAll(6)

		f := t.deliver()
		refs := f.added(f.during(func() { t.enqueue(newEvent("acct", "beside"), 1) }), 1)
		f.wait("all", func([]Report) bool {
			left, err := f.source.Unreported(t.Context(), "")
			t.must(err)
			return left.Pending == 0
		})
		for _, id := range []string{"a", "b", "held", "unknown"} {
			want(t, id, 0, 0)
		}
		want(t, "", 0, 1)
		f.record(result(refs[0].Ref, 1, driver.Deliver))
		list := f.load(refs[0].Ref)
		wantSame(t, "State", list[0].State, driver.Gone)
		recorded := map[driver.DeliveryRef]bool{}
		for _, r := range f.Reports() {
			if r.Method == "Add" && r.Ref.WebhookID == marker && !recorded[r.Ref] {
				recorded[r.Ref] = true
				f.record(result(r.Ref, 1, driver.Deliver))
			}
		}
		f.end()
		wantAll(6)
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "a", nil, audit.Entry{}))
		want(t, "", 7, 1)
		want(t, "a", 0, 0)
	})

	run("counts retried, redelivered and recovered deliveries, not settled ones or those of deleted webhooks", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"), newWebhook("acct", "deleted"))
		t.enqueueMany("acct", 8, 2)
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "deleted", nil, audit.Entry{}))
		for i, task := range t.claim(6) { // two deliveries remain unclaimed
			end := settlement(task, []driver.Effect{driver.GiveUp, driver.Deliver, driver.Retry}[i%3])
			end.RetryAfter = time.Hour
			t.settle(end)
		}
		pending := func(number int) {
			t.Helper()
			t.worker().Close()
			for _, id := range []string{"", "webhook"} {
				want(t, id, number, 0)
			}
			want(t, "deleted", 0, 0)
		}
		pending(4)
		t.must(t.store.Redeliver(t.Context(), "acct", "webhook", numbered("event", 1), audit.Entry{}))
		t.must(t.store.Redeliver(t.Context(), "acct", "webhook", numbered("event", 2), audit.Entry{})) // already pending
		pending(5)
		t.createRecoveries(newRecovery("acct", "webhook", "recovery", driver.Dead))
		t.advance(1)
		pending(7)
		t.purge(driver.Purge{Payloads: t.border()})
		pending(0)
	})

	fed(run)("a delivery visible to readers is reported or counted", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"))
		for i := range 20 {
			id := numbered("event", i)
			published := make(chan error, 1)
			go func() {
				_, err := f.store.Enqueue(f.Context(), newEvent("acct", id))
				published <- err
			}()
			for end := time.Now().Add(eventTimeout); ; {
				_, err := f.store.EventDeliveries(f.Context(), "acct", id)
				if err == nil {
					break
				}
				if !errors.Is(err, apierr.ErrNotFound) || time.Now().After(end) {
					f.Fatalf("EventDeliveries = %v", err)
				}
			}
			left, err := f.source.Unreported(f.Context(), "webhook")
			f.must(err)
			known := map[driver.DeliveryRef]bool{}
			for _, r := range f.seen() {
				if r.Method == "Add" && r.Ref.WebhookID == "webhook" {
					known[r.Ref] = true
				}
			}
			if len(known)+left.Pending <= i {
				f.Errorf("after event %d was visible, %d events were reported and %d counted", i, len(known), left.Pending)
			}
			f.must(<-published)
		}
	})

	run("OldestDue ignores deliveries that cannot be sent", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"), newWebhook("other", "off"))
		wantSame(t, "OldestDue without deliveries", want(t, "", 0, 0).OldestDue.IsZero(), true)
		t.enqueue(newEvent("other", "event"), 1)
		t.setActive("other", "off", false)
		wantSame(t, "OldestDue of an inactive webhook", want(t, "", 1, 0).OldestDue.IsZero(), true)
		paused := newWebhook("paused", "paused")
		now := t.now()
		paused.PausedUntil = now.Add(time.Hour)
		t.createWebhooks(paused)
		t.enqueue(newEvent("paused", "event"), 1)
		wantSame(t, "OldestDue of a paused webhook", want(t, "", 2, 0).OldestDue.IsZero(), true)
		t.updateWebhook("paused", "paused", func(w *driver.Webhook) { w.PausedUntil = now.Add(-time.Second) })
		wantSame(t, "OldestDue is zero after the pause", want(t, "paused", 1, 0).OldestDue.IsZero(), false)
		t.updateWebhook("paused", "paused", func(w *driver.Webhook) { w.PausedUntil = driver.NoEnd })
		t.enqueue(newEvent("acct", "event"), 1)
		due := t.delivery("acct", "event").NextAttemptAt
		for _, id := range []string{"", "webhook"} {
			got, err := t.store.(driver.Deliveries).Unreported(t.Context(), id)
			t.must(err)
			if off := got.OldestDue.Sub(due).Abs(); off > 50*time.Millisecond {
				t.Errorf("OldestDue of %q = %v, which differs from the due time by %v", id, got.OldestDue, off)
			}
		}
	})

	run("Ping and Unreported fail with an ended context and on a closed store", func(t *tester) {
		d := t.store.(driver.Deliveries)
		t.must(d.Ping(t.Context()))
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		t.wantError("Ping", d.Ping(ended), context.Canceled)
		_, err := d.Unreported(ended, "")
		t.wantError("Unreported", err, context.Canceled)
		t.must(t.store.Close())
		t.wantError("Ping", d.Ping(t.Context()), store.ErrClosed)
		_, err = d.Unreported(t.Context(), "")
		t.wantError("Unreported", err, store.ErrClosed)
	})
}
