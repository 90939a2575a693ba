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
			t.wantError("CreateWebhook", t.store.CreateWebhook(t.Context(), again), webhooks.ErrExists)
			wantSame(t, "WebhookByID", t.webhook("acct", "webhook"), w)
		}
		_, err := t.store.WebhookByID(t.Context(), "other", "webhook")
		t.wantError("WebhookByID", err, webhooks.ErrNotFound)
		t.enqueue(newEvent("other", "event"), 0)
		t.enqueue(newEvent("acct", "event"), 1)
		wantSame(t, "Task.Webhook", t.claimAll(1)[0].Webhook, w)
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
				err := t.store.CreateWebhook(t.Context(), all[i])
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
			t.must(t.store.DeleteWebhook(t.Context(), "acct", id))
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
		want.BalanceThreshold, want.Secret = 0, signing.NewSecret()
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
			end.Deactivate = true
			inParallel(2, func(i int) {
				if i == 0 {
					_, err := t.store.UpdateWebhook(t.Context(), id, id, func(w *webhooks.Webhook) error {
						w.URL = "changed"
						return nil
					})
					t.wantError("UpdateWebhook", err, nil)
					return
				}
				_, err := t.store.SettleDeliveries(t.Context(), []webhooks.Settlement{end})
				t.wantError("SettleDeliveries", err, nil)
			})
			if w := t.webhook(id, id); w.URL != "changed" || w.Active {
				t.Errorf("URL = %q, Active = %v, want both changes", w.URL, w.Active)
			}
		}
	})
}

// deleteWebhook tests DeleteWebhook.
func deleteWebhook(run runner) {
	run("removes a webhook and all that it is owed", func(t *tester) {
		w, other := newWebhook("acct", "webhook"), newWebhook("acct", "other")
		t.createWebhooks(w, other)
		t.enqueueMany("acct", 3, 2)
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "webhook"))
		_, err := t.store.WebhookByID(t.Context(), "acct", "webhook")
		t.wantError("WebhookByID", err, webhooks.ErrNotFound)
		list, err := t.store.ListWebhooks(t.Context(), "acct", webhooks.Page{Limit: 9})
		t.must(err)
		wantSame(t, "ListWebhooks", list, []webhooks.Webhook{other})
		for i, task := range t.claimAll(3) {
			wantSame(t, "Task.Webhook", task.Webhook, other)
			wantSame(t, "WebhookID", t.delivery("acct", numbered("event", i)).WebhookID, "other")
		}
		t.enqueue(newEvent("acct", "later"), 1)
	})

	run("ErrNotFound", func(t *tester) {
		t.wantError("DeleteWebhook", t.store.DeleteWebhook(t.Context(), "acct", "webhook"), webhooks.ErrNotFound)
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "webhook"))
		t.wantError("DeleteWebhook", t.store.DeleteWebhook(t.Context(), "acct", "webhook"), webhooks.ErrNotFound)
	})

	run("settlements of what was claimed before are stale", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 4, 1)
		tasks := t.claimAll(4)
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "webhook"))
		for i, outcome := range []webhooks.Outcome{webhooks.Release, webhooks.Retry, webhooks.Deliver, webhooks.GiveUp} {
			end := settlement(tasks[i], outcome)
			end.Deactivate = true
			t.wantStale(end)
			wantSame(t, "EventDeliveries", t.deliveries("acct", tasks[i].Event.ID), nil)
		}
		t.claimAll(0)
	})

	run("its settled deliveries remain", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 3, 1)
		tasks := t.claimAll(3)
		t.settle(settlement(tasks[0], webhooks.Deliver), settlement(tasks[1], webhooks.GiveUp), settlement(tasks[2], webhooks.Retry))
		delivered, dead := t.deliveries("acct", tasks[0].Event.ID), t.deliveries("acct", tasks[1].Event.ID)
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "webhook"))
		wantSame(t, "EventDeliveries", t.deliveries("acct", tasks[0].Event.ID), delivered)
		wantSame(t, "EventDeliveries", t.deliveries("acct", tasks[1].Event.ID), dead)
		wantSame(t, "EventDeliveries", t.deliveries("acct", tasks[2].Event.ID), nil)
	})

	run("one made again with its id is owed nothing, in whatever account", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 3, 1)
		one := webhooks.Claim{Limit: 1, PerWebhook: 2, Lease: longLease}
		settled, leased := t.claim(one)[0], t.claim(one)[0]
		t.settle(settlement(settled, webhooks.Deliver))
		want := t.deliveries("acct", settled.Event.ID)
		for _, account := range []string{"acct", "other"} {
			t.must(t.store.DeleteWebhook(t.Context(), "acct", "webhook"))
			w := newWebhook(account, "webhook")
			t.createWebhooks(w)
			t.claimAll(0)
			t.wantStale(settlement(leased, webhooks.Deliver))
			t.enqueue(newEvent(account, "later"), 1)
			task := t.claimAll(1)[0]
			wantSame(t, "Task.Event", task.Event, newEvent(account, "later"))
			wantSame(t, "Task.Webhook", task.Webhook, w)
		}
		t.enqueue(newEvent("other", settled.Event.ID), 1)
		t.settle(settlement(t.claimAll(1)[0], webhooks.GiveUp))
		wantSame(t, "EventDeliveries", t.deliveries("acct", settled.Event.ID), want)
	})
}
