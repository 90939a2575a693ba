package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/driver"
)

func createWebhook(run runner) {
	run("returns ErrExists if any account has a webhook with the same ID", func(t *tester) {
		w := newWebhook("acct", "webhook")
		t.createWebhooks(w)
		for _, account := range []string{"acct", "other"} {
			again := newWebhook(account, "webhook")
			again.Active = false
			t.wantError("CreateWebhook", t.store.CreateWebhook(t.Context(), again, driver.CreateOptions{}), apierr.ErrExists)
			wantSame(t, "WebhookByID", t.webhook("acct", "webhook"), w)
		}
		_, err := t.store.WebhookByID(t.Context(), "other", "webhook")
		t.wantError("WebhookByID", err, apierr.ErrNotFound)
		t.enqueue(newEvent("other", "event"), 0)
		t.enqueue(newEvent("acct", "event"), 1)
		wantSame(t, "Task.Webhook", *t.claimAll(1)[0].Webhook, w)
	})

	run("WebhookByID returns ErrNotFound for an unknown webhook", func(t *tester) {
		_, err := t.store.WebhookByID(t.Context(), "acct", "webhook")
		t.wantError("WebhookByID", err, apierr.ErrNotFound)
	})

	run("if several webhooks with the same ID are created concurrently, one succeeds", func(t *tester) {
		for round := range 25 {
			const goroutines = 8
			id, won := numbered("webhook", round), make([]bool, goroutines)
			all := make([]driver.Webhook, goroutines)
			for i := range all {
				all[i] = newWebhook(numbered("acct", i%3), id) // with different secrets
			}
			inParallel(goroutines, func(i int) {
				err := t.store.CreateWebhook(t.Context(), all[i], driver.CreateOptions{})
				if won[i] = err == nil; !won[i] {
					t.wantError("CreateWebhook", err, apierr.ErrExists)
				}
			})
			if n := countTrue(won); n != 1 {
				t.Fatalf("%d webhooks with the same ID created, want 1", n)
			}
			winner := all[slices.Index(won, true)]
			wantSame(t, "WebhookByID", t.webhook(winner.Account, id), winner)
		}
	})
}

// updateWebhook tests UpdateWebhook, except for its effect on deliveries, which other tests cover.
func updateWebhook(run runner) {
	run("passes a copy to change, stores the result and returns it", func(t *tester) {
		w := newWebhook("acct", "webhook")
		t.createWebhooks(w, newWebhook("acct", "other"))
		want := w
		want.URL, want.Active = "https://example.org", false
		want.Events = []driver.EventType{fourthType}
		want.PastEvents = []driver.EventType{eventType, otherType}
		want.Threshold, want.Secret, want.Headers, want.PausedUntil = 0, signing.NewSecret(), someHeaders(), some
		want.PreviousSecret, want.PreviousSecretExpiresAt = w.Secret, some.Add(time.Hour)
		var given driver.Webhook
		got := t.updateWebhook("acct", "webhook", func(w *driver.Webhook) {
			given = *w
			*w = want
		})
		wantSame(t, "webhook passed to change", given, w)
		wantSame(t, "UpdateWebhook", got, want)
		wantSame(t, "WebhookByID", t.webhook("acct", "webhook"), want)
		wantSame(t, "other webhook's URL", t.webhook("acct", "other").URL, newWebhook("acct", "other").URL)
	})

	run("returns ErrNotFound if the webhook does not exist", func(t *tester) {
		_, err := t.store.UpdateWebhook(t.Context(), "acct", "webhook", turnOff)
		t.wantError("UpdateWebhook", err, apierr.ErrNotFound)
	})

	run("stores nothing if change returns an error", func(t *tester) {
		w := newWebhook("acct", "webhook")
		w.Headers = someHeaders()
		t.createWebhooks(w)
		_, err := t.store.UpdateWebhook(t.Context(), "acct", "webhook", func(w *driver.Webhook, _ *audit.Entry) error {
			w.URL, w.Active, w.Events[0], w.Headers[0].Value = "changed", false, "changed", "changed"
			return fmt.Errorf("wrapped: %w", errChange)
		})
		t.wantError("UpdateWebhook", err, errChange)
		wantSame(t, "WebhookByID", t.webhook("acct", "webhook"), w)
		t.enqueue(newEvent("acct", "event"), 1)
		t.claimAll(1)
	})

	run("does not change ID, Account and CreatedAt", func(t *tester) {
		w := newWebhook("acct", "webhook")
		t.createWebhooks(w)
		got := t.updateWebhook("acct", "webhook", func(w *driver.Webhook) {
			w.ID, w.Account, w.CreatedAt, w.URL = "id", "other", some.Add(time.Hour), "changed"
		})
		w.URL = "changed"
		wantSame(t, "UpdateWebhook", got, w)
		wantSame(t, "WebhookByID", t.webhook("acct", "webhook"), w)
		_, err := t.store.WebhookByID(t.Context(), "other", "id")
		t.wantError("WebhookByID", err, apierr.ErrNotFound)
	})

	webhookRecords.updates(run)

	run("a concurrent settlement that disables the webhook is not undone", func(t *tester) {
		for round := range 10 {
			id := numbered("webhook", round)
			t.createWebhooks(newWebhook(id, id))
			t.enqueue(newEvent(id, "event"), 1)
			end := settlement(t.claimAll(1)[0], driver.GiveUp)
			end.Deactivate = driver.OffGone
			inParallel(2, func(i int) {
				if i == 0 {
					_, err := t.store.UpdateWebhook(t.Context(), id, id, func(w *driver.Webhook, _ *audit.Entry) error {
						w.Threshold = 1
						return nil
					})
					t.wantError("UpdateWebhook", err, nil)
					return
				}
				_, err := t.worker().Settle(t.Context(), []Settlement{end})
				t.wantError("Settle", err, nil)
			})
			if w := t.webhook(id, id); w.Threshold != 1 || w.Active {
				t.Errorf("Threshold = %v, Active = %v, want both changes", w.Threshold, w.Active)
			}
		}
	})
}
