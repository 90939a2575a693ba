package storetest

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/webhooks"
)

// createWebhook tests CreateWebhook and WebhookByID.
func createWebhook(run runner) {
	run("ErrExists if there is one of that id, in whatever account", func(t *tester) {
		w := newWebhook("acct", "webhook")
		t.createWebhooks(w)
		for _, account := range []string{"acct", "other"} {
			again := newWebhook(account, "webhook")
			again.Active = false
			t.wantError("CreateWebhook", t.store.CreateWebhook(t.Context(), again, webhooks.CreateOptions{}), webhooks.ErrExists)
			wantSame(t, "WebhookByID", t.webhook("acct", "webhook"), w)
		}
		_, err := t.store.WebhookByID(t.Context(), "other", "webhook")
		t.wantError("WebhookByID", err, webhooks.ErrNotFound)
		t.enqueue(newEvent("other", "event"), 0)
		t.enqueue(newEvent("acct", "event"), 1)
		wantSame(t, "Task.Webhook", *t.claimAll(1)[0].Webhook, w)
	})

	run("WebhookByID returns ErrNotFound", func(t *tester) {
		_, err := t.store.WebhookByID(t.Context(), "acct", "webhook")
		t.wantError("WebhookByID", err, webhooks.ErrNotFound)
	})

	run("of webhooks with one id at once, one wins", func(t *tester) {
		for round := range 25 {
			const goroutines = 8
			id, won := numbered("webhook", round), make([]bool, goroutines)
			all := make([]webhooks.Webhook, goroutines)
			for i := range all {
				all[i] = newWebhook(numbered("acct", i%3), id) // each with a secret of its own
			}
			inParallel(goroutines, func(i int) {
				err := t.store.CreateWebhook(t.Context(), all[i], webhooks.CreateOptions{})
				if won[i] = err == nil; !won[i] {
					t.wantError("CreateWebhook", err, webhooks.ErrExists)
				}
			})
			if n := countTrue(won); n != 1 {
				t.Fatalf("%d webhooks of one id were created, want 1", n)
			}
			winner := all[slices.Index(won, true)]
			wantSame(t, "WebhookByID", t.webhook(winner.Account, id), winner)
		}
	})
}

// listWebhooks tests ListWebhooks.
func listWebhooks(run runner) {
	list := func(t *tester, account, after string, limit int) []webhooks.Webhook {
		t.Helper()
		list, err := t.store.ListWebhooks(t.Context(), account, webhooks.Page{After: after, Limit: limit})
		t.must(err)
		return list
	}

	run("by descending id, in pages of any size", func(t *tester) {
		const n = 7
		want := make([]webhooks.Webhook, n)
		for _, i := range []int{3, 0, 6, 1, 5, 2, 4} {
			want[n-1-i] = newWebhook("ab", numbered("webhook", i))
			t.createWebhooks(want[n-1-i])
			for _, near := range []string{"a", "abc", "ab/", "ab:", "AB", "b"} {
				t.createWebhooks(newWebhook(near, numbered("a "+near, i)), newWebhook(near, numbered("z "+near, i)))
			}
		}
		for limit := 1; limit <= n+1; limit++ {
			var got []webhooks.Webhook
			for after := ""; ; {
				page := list(t, "ab", after, limit)
				if len(page) != min(limit, n-len(got)) {
					t.Fatalf("a page of at most %d after %d of %d webhooks has %d", limit, len(got), n, len(page))
				}
				if len(page) == 0 {
					break
				}
				got = append(got, page...)
				after = page[len(page)-1].ID
			}
			wantSame(t, "all pages", got, want)
		}
	})

	run("ids go by their bytes", func(t *tester) {
		ids := slices.Clone(oddStrings)
		for _, id := range ids {
			t.createWebhooks(newWebhook("acct", id))
		}
		slices.Sort(ids)
		slices.Reverse(ids)
		var got []string
		for _, w := range list(t, "acct", "", 1000) {
			got = append(got, w.ID)
		}
		wantSame(t, "ids", got, ids)
	})

	run("an empty list past the end", func(t *tester) {
		wantSame(t, "list of an account without webhooks", list(t, "acct", "", 9), nil)
		t.createWebhooks(newWebhook("acct", "webhook"))
		wantSame(t, "list after the last", list(t, "acct", "webhook", 9), nil)
		wantSame(t, "list after less than all", list(t, "acct", "a", 9), nil)
	})

	run("the id after which the page begins need not exist", func(t *tester) {
		a, c := newWebhook("acct", "a"), newWebhook("acct", "c")
		t.createWebhooks(a, c, newWebhook("acct", "b"), newWebhook("acct", "d"))
		for _, id := range []string{"b", "d"} {
			t.must(t.store.DeleteWebhook(t.Context(), "acct", id, nil))
		}
		wantSame(t, "after d", list(t, "acct", "d", 9), []webhooks.Webhook{c, a})
		wantSame(t, "after b", list(t, "acct", "b", 9), []webhooks.Webhook{a})
		wantSame(t, "after more than all", list(t, "acct", "zzz", 1), []webhooks.Webhook{c})
	})
}

// updateWebhook tests UpdateWebhook; what it does to deliveries is with theirs.
func updateWebhook(run runner) {
	run("calls change with a copy, stores what it leaves, returns that", func(t *tester) {
		w := newWebhook("acct", "webhook")
		t.createWebhooks(w, newWebhook("acct", "other"))
		want := w
		want.URL, want.Active = "https://example.org", false
		want.Events = []webhooks.EventType{webhooks.TypeTransactionsLimitReached}
		want.PastEvents = []webhooks.EventType{webhooks.TypeBalanceLow, webhooks.TypeFilesExpiring}
		want.BalanceThreshold, want.Secret = 0, signing.NewSecret()
		want.PreviousSecret, want.PreviousSecretExpiresAt = w.Secret, some.Add(time.Hour)
		var given webhooks.Webhook
		got := t.updateWebhook("acct", "webhook", func(w *webhooks.Webhook) {
			given = *w
			*w = want
		})
		wantSame(t, "what change is given", given, w)
		wantSame(t, "UpdateWebhook", got, want)
		wantSame(t, "WebhookByID", t.webhook("acct", "webhook"), want)
		wantSame(t, "the other URL", t.webhook("acct", "other").URL, newWebhook("acct", "other").URL)
	})

	run("ErrNotFound if there is no such webhook", func(t *tester) {
		_, err := t.store.UpdateWebhook(t.Context(), "acct", "webhook", turnOff)
		t.wantError("UpdateWebhook", err, webhooks.ErrNotFound)
	})

	run("nothing is stored if change returns an error", func(t *tester) {
		w := newWebhook("acct", "webhook")
		t.createWebhooks(w)
		_, err := t.store.UpdateWebhook(t.Context(), "acct", "webhook", func(w *webhooks.Webhook) error {
			w.URL, w.Active, w.Events[0] = "changed", false, "changed"
			return fmt.Errorf("wrapped: %w", errChange)
		})
		t.wantError("UpdateWebhook", err, errChange)
		wantSame(t, "WebhookByID", t.webhook("acct", "webhook"), w)
		t.enqueue(newEvent("acct", "event"), 1)
		t.claimAll(1)
	})

	run("ID, Account and CreatedAt keep their values", func(t *tester) {
		w := newWebhook("acct", "webhook")
		t.createWebhooks(w)
		got := t.updateWebhook("acct", "webhook", func(w *webhooks.Webhook) {
			w.ID, w.Account, w.CreatedAt, w.URL = "id", "other", some.Add(time.Hour), "changed"
		})
		w.URL = "changed"
		wantSame(t, "UpdateWebhook", got, w)
		wantSame(t, "WebhookByID", t.webhook("acct", "webhook"), w)
		_, err := t.store.WebhookByID(t.Context(), "other", "id")
		t.wantError("WebhookByID", err, webhooks.ErrNotFound)
	})

	run("no other change comes between reading and storing", func(t *tester) {
		const goroutines, each = 8, 20
		w := newWebhook("acct", "webhook")
		w.URL = "0"
		t.createWebhooks(w)
		inParallel(goroutines, func(int) {
			for range each {
				_, err := t.store.UpdateWebhook(t.Context(), "acct", "webhook", func(w *webhooks.Webhook) error {
					n, err := strconv.Atoi(w.URL)
					time.Sleep(time.Microsecond) // lets the others in
					w.URL = strconv.Itoa(n + 1)
					return err
				})
				t.wantError("UpdateWebhook", err, nil)
			}
		})
		wantSame(t, "URL", t.webhook("acct", "webhook").URL, strconv.Itoa(goroutines*each))
	})

	run("it and a settlement that deactivates do not undo each other", func(t *tester) {
		for round := range 10 {
			id := numbered("webhook", round)
			t.createWebhooks(newWebhook(id, id))
			t.enqueue(newEvent(id, "event"), 1)
			end := settlement(t.claimAll(1)[0], webhooks.GiveUp)
			end.Deactivate = webhooks.OffGone
			inParallel(2, func(i int) {
				if i == 0 {
					_, err := t.store.UpdateWebhook(t.Context(), id, id, func(w *webhooks.Webhook) error {
						w.BalanceThreshold = 1
						return nil
					})
					t.wantError("UpdateWebhook", err, nil)
					return
				}
				_, err := t.store.SettleDeliveries(t.Context(), []webhooks.Settlement{end})
				t.wantError("SettleDeliveries", err, nil)
			})
			if w := t.webhook(id, id); w.BalanceThreshold != 1 || w.Active {
				t.Errorf("BalanceThreshold = %v, Active = %v, want both changes", w.BalanceThreshold, w.Active)
			}
		}
	})
}
