package storetest

import (
	"sync"
	"testing"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
)

// RunDurable tests that acknowledged changes survive closing and reopening a store. The function
// open must open a store whose data is in the directory dir. dir is empty at first; later calls
// pass a directory with the data of an earlier store. The suite closes the store.
func RunDurable(t *testing.T, open func(t *testing.T, dir string) store.Store) {
	t.Helper()
	reopened := func(name string, before, after func(*tester)) {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, step := range []func(*tester){before, func(*tester) {}, after} {
				func() {
					s := open(t, dir)
					defer closeStore(t, s)
					step(&tester{t, s})
				}()
			}
		})
	}
	durableRecords(reopened)
	durableHold(reopened)
	durableCuts(reopened)
	durableCreations(reopened)
	durableDeliveries(reopened)
	durableHistory(reopened)
	durableRecoveries(reopened)
	durablePurges(reopened)
	durableAlerts(reopened)
	durableScan(reopened)
	durableAuditEntries(reopened)
}

// durableRecords tests that keys, webhooks and events survive a restart.
func durableRecords(reopened func(name string, before, after func(*tester))) {
	used, changed, gone := rotatedKey("acct", "used"), rotatedKey("acct", "changed"), rotatedKey("acct", "gone")
	reopened("keys with their hashes and last uses", func(t *tester) {
		t.createKeys(used, changed, gone)
		t.must(t.store.RecordKeyUse(t.Context(), []driver.KeyUse{
			{Account: "acct", ID: "used", Hash: used.Hash, At: some.Add(time.Minute)}, {Account: "acct", ID: "gone", At: some},
			{Account: "acct", ID: "used", Hash: used.Previous, At: some.Add(time.Second)},
		}))
		changed = t.updateKey("changed", func(key *driver.Key) { key.Name, key.Hash, key.Hint = "renamed", hashOf("new"), "new_…A1b2" })
		t.must(t.store.DeleteKey(t.Context(), "acct", "gone", nil, audit.Entry{}))
	}, func(t *tester) {
		for _, key := range []driver.Key{used, changed} {
			t.wantKeyAt(key.Hash, key)
			t.wantKeyAt(key.Previous, key)
		}
		used.LastUsedAt, used.PreviousUsedAt = some.Add(time.Minute), some.Add(time.Second)
		list, err := t.store.ListKeys(t.Context(), "acct", driver.ListQuery{Limit: 9})
		t.must(err)
		wantSame(t, "ListKeys", list, []driver.Key{used, changed})
		wantSame(t, "ExpiringKeys", t.expiries(driver.ExpiryQuery{Before: some.AddDate(1, 0, 0), Limit: 9}), []string{"acct changed", "acct used"})
		t.wantNoKeyAt(rotatedKey("acct", "changed").Hash)
		t.wantNoKeyAt(gone.Hash)
		t.wantNoKeyAt(gone.Previous)

		// IDs and hashes that existed before the restart are still in use.
		t.wantError("CreateKey", t.store.CreateKey(t.Context(), used, driver.CreateOptions{}), apierr.ErrExists)
		thief := newKey("other", "thief")
		thief.Hash = used.Previous
		t.wantError("CreateKey", t.store.CreateKey(t.Context(), thief, driver.CreateOptions{}), apierr.ErrExists)
		t.must(t.store.RecordKeyUse(t.Context(), []driver.KeyUse{{Account: "acct", ID: "used", At: some}}))
		wantSame(t, "KeyByID", t.key("acct", "used"), used)
		t.createKeys(gone)
		wantSame(t, "KeyByID", t.key("acct", "gone"), gone)
	})

	w, off := newWebhook("acct", "webhook"), newWebhook("acct", "off")
	w.FailingSince, w.WarnedAt = some, some.Add(time.Hour)
	w.FailingEvent, w.FailedAgain = "event", true
	w.PreviousSecret, w.PreviousSecretExpiresAt = signing.NewSecret(), some.Add(time.Minute)
	w.Headers, w.PausedUntil, w.Signatures = someHeaders(), some, []signing.Scheme{signing.V1a}
	reopened("webhooks, active, inactive and deleted", func(t *tester) {
		t.createWebhooks(w, off, newWebhook("acct", "gone"))
		t.enqueue(newEvent("acct", "event"), 3)
		off = t.updateWebhook("acct", "off", func(w *driver.Webhook) {
			w.Active, w.URL, w.OffReason = false, "changed", driver.OffFailing
		})
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "gone", nil, audit.Entry{}))
	}, func(t *tester) {
		list, err := t.store.ListWebhooks(t.Context(), "acct", driver.ListQuery{Limit: 9})
		t.must(err)
		wantSame(t, "ListWebhooks", list, []driver.Webhook{w, off})
		backlog := t.backlog("off")
		wantSame(t, "Backlog of an inactive webhook", backlog, driver.Backlog{Pending: 1})
		wantSame(t, "Task.Webhook", *t.claimAll(1)[0].Webhook, w)
		t.claimAll(0)
		t.setActive("acct", "off", true)
		wantSame(t, "Task.Webhook.ID", t.claimAll(1)[0].Webhook.ID, "off")
		wantSame(t, "number of deliveries", len(t.deliveries("acct", "event")), 2)
	})

	reopened("known events", func(t *tester) {
		t.enqueue(newEvent("acct", "unheard"), 0)
		t.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"))
		t.enqueue(newEvent("acct", "pending"), 2)
		t.enqueue(newEvent("acct", "settled"), 2)
		for _, task := range t.claimAll(4) {
			if task.Event.ID == "settled" {
				t.settle(settlement(task, driver.Deliver))
			} else {
				t.settle(settlement(task, Postpone))
			}
		}
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "b", nil, audit.Entry{}))
	}, func(t *tester) {
		for id, want := range map[string]int{"unheard": 0, "pending": 2, "settled": 2} {
			t.enqueue(newEvent("acct", id), want)
		}
		wantSame(t, "Task.Event", t.claimAll(1)[0].Event, newEvent("acct", "pending"))
		t.enqueue(newEvent("acct", "another"), 1)
	})

	var mu sync.Mutex
	var acknowledged []driver.Key
	reopened("steps acknowledged during Close", func(t *tester) {
		inParallel(4, func(i int) {
			if i == 0 {
				time.Sleep(5 * time.Millisecond)
				t.wantError("Close", t.store.Close(), nil)
				return
			}
			for j := range 1_000 {
				key := newKey("acct", numbered(numbered("key", i), j))
				if err := t.store.CreateKey(t.Context(), key, driver.CreateOptions{}); err != nil {
					t.wantError("CreateKey", err, store.ErrClosed)
					return
				}
				mu.Lock()
				acknowledged = append(acknowledged, key)
				mu.Unlock()
			}
		})
	}, func(t *tester) {
		for _, key := range acknowledged {
			t.wantKeyAt(key.Hash, key)
		}
	})
}

// durableDeliveries tests that pending and settled deliveries survive a restart.
func durableDeliveries(reopened func(name string, before, after func(*tester))) {
	states := map[string]driver.Delivery{}
	reopened("deliveries with their due times and attempts", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		for _, id := range []string{"new", "tried", "later", "delivered", "dead"} {
			t.enqueue(newEvent("acct", id), 1)
		}
		for range 2 {
			for _, task := range t.await(5) {
				t.settle(settlement(task, driver.Retry))
			}
		}
		for _, task := range t.await(5) {
			end := settlement(task, map[string]driver.Effect{
				"new": Postpone, "tried": driver.Retry, "later": driver.Retry, "delivered": driver.Deliver, "dead": driver.GiveUp,
			}[task.Event.ID])
			if task.Event.ID == "later" {
				end.RetryAfter = 20 * time.Minute
			}
			t.settle(end)
		}
		for _, id := range []string{"new", "tried", "later", "delivered", "dead"} {
			states[id] = t.delivery("acct", id)
		}
	}, func(t *tester) {
		for id, want := range states {
			wantSame(t, "EventDeliveries of "+id, t.delivery("acct", id), want)
		}
		attempts := map[string]int{}
		for _, task := range t.await(2) {
			wantSame(t, "Task.Event", task.Event, newEvent("acct", task.Event.ID))
			attempts[task.Event.ID] = task.Attempt
		}
		wantSame(t, "numbers of the next attempts", attempts, map[string]int{"new": 3, "tried": 4})
		t.claimAll(0)
	})

	var lost []Task
	reopened("an attempt of an ended process is repeated, and its result counts once", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 3, 1)
		lost = t.claimAll(3)
	}, func(t *tester) {
		for _, task := range t.claimAll(3) {
			wantSame(t, "Task.Attempt", task.Attempt, 1)
			t.settle(settlement(task, driver.Deliver))
		}
		for _, task := range lost {
			t.wantStale(settlement(task, driver.Deliver))
		}
	})

	reopened("removed records stay removed", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 3, 1)
		tasks := t.claimAll(3)
		t.settle(settlement(tasks[0], driver.Deliver))
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "webhook", nil, audit.Entry{}))
		wantSame(t, "number of deliveries", len(t.deliveries("acct", tasks[0].Event.ID)), 1)
	}, func(t *tester) {
		_, err := t.store.WebhookByID(t.Context(), "acct", "webhook")
		t.wantError("WebhookByID", err, apierr.ErrNotFound)
		remaining := 0
		for i := range 3 {
			remaining += len(t.deliveries("acct", numbered("event", i)))
		}
		wantSame(t, "number of deliveries", remaining, 1)
		backlog := t.backlog("")
		wantSame(t, "Pending", backlog.Pending, 0)
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.claimAll(0)
		t.enqueue(newEvent("acct", "later"), 1)
		wantSame(t, "Task.Event.ID", t.claimAll(1)[0].Event.ID, "later")
	})

	var deactivated driver.Webhook
	reopened("inactive webhooks with reason, and the start of failures", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 2, 1)
		end := settlement(t.claim(1)[0], driver.GiveUp)
		end.Deactivate = driver.OffGone
		t.settle(end)
		deactivated = t.webhook("acct", "webhook")
		wantSame(t, "OffReason", deactivated.OffReason, driver.OffGone)
		wantSame(t, "FailingSince", deactivated.FailingSince, end.Attempt.StartedAt)
	}, func(t *tester) {
		wantSame(t, "WebhookByID", t.webhook("acct", "webhook"), deactivated)
		t.claimAll(0)
		t.enqueue(newEvent("acct", "missed"), 0)
		t.setActive("acct", "webhook", true)
		t.claimAll(1)
	})
}
