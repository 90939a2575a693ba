package storetest

import (
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
)

// held tests webhooks on hold.
func held(run runner) {
	hold := func(t *tester, held bool, ids ...string) {
		t.Helper()
		for _, id := range ids {
			t.updateWebhook("acct", id, func(w *driver.Webhook) { w.Held = held })
		}
	}
	claimed := func(t *tester) (of []string) {
		t.Helper()
		for _, task := range t.claim(99) {
			of = append(of, task.Webhook.ID+" "+task.Event.ID)
		}
		return of
	}

	run("claims skip a webhook on hold, even for events published earlier", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"))
		t.enqueue(newEvent("acct", "1"), 2)
		hold(t, true, "a")
		t.enqueue(newEvent("acct", "2"), 2)
		wantSame(t, "claimed", claimed(t), []string{"b 1", "b 2"})
		for _, d := range t.deliveries("acct", "2") {
			wantSame(t, "State for "+d.WebhookID, d.State, driver.Pending)
		}
		hold(t, false, "a")
		wantSame(t, "claimed after the release", claimed(t), []string{"a 1", "a 2"})
	})

	run("a webhook can be created on hold", func(t *tester) {
		w := newWebhook("acct", "a")
		w.Held = true
		t.createWebhooks(w)
		t.enqueue(newEvent("acct", "1"), 1)
		wantSame(t, "claimed", claimed(t), nil)
		hold(t, false, "a")
		wantSame(t, "claimed after the release", claimed(t), []string{"a 1"})
	})

	run("probes, redeliveries and recoveries wait, too", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"))
		t.settleEvent(newEvent("acct", "1"), 1, driver.GiveUp)
		t.settleEvent(newEvent("acct", "2"), 1, driver.GiveUp)
		hold(t, true, "a")
		t.must(t.store.Redeliver(t.Context(), "acct", "a", "1", audit.Entry{}))
		t.createRecoveries(newRecovery("acct", "a", "recovery", driver.Dead))
		for more := true; more; {
			var err error
			more, err = t.store.AdvanceRecovery(t.Context(), 99)
			t.must(err)
		}
		t.must(t.store.Probe(t.Context(), "acct", "a"))
		wantSame(t, "claimed", claimed(t), nil)
		wantSame(t, "Pending", t.backlog("a").Pending, 2)
		hold(t, false, "a")
		t.await(2)
	})

	run("enabling or disabling a webhook does not change its hold", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"))
		t.enqueue(newEvent("acct", "1"), 1)
		hold(t, true, "a")
		t.setActive("acct", "a", false)
		t.setActive("acct", "a", true)
		wantSame(t, "claimed", claimed(t), nil)
		t.setActive("acct", "a", false)
		hold(t, false, "a")
		wantSame(t, "claimed while the webhook is inactive", claimed(t), nil)
		hold(t, true, "a")
		t.enqueue(newEvent("acct", "2"), 0)
		wantSame(t, "State of an event published while the webhook is inactive", t.delivery("acct", "2").State, driver.Skipped)
		t.setActive("acct", "a", true)
		hold(t, false, "a")
		wantSame(t, "claimed in the end", claimed(t), []string{"a 1"})
	})

	run("earlier claims are settled, and their retries wait", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"))
		t.enqueue(newEvent("acct", "1"), 1)
		t.enqueue(newEvent("acct", "2"), 1)
		tasks := t.claimAll(2)
		hold(t, true, "a")
		t.settle(settlement(tasks[0], driver.Deliver), settlement(tasks[1], driver.Retry))
		wantSame(t, "State", t.delivery("acct", "1").State, driver.Delivered)
		time.Sleep(5 * time.Millisecond)
		wantSame(t, "claimed", claimed(t), nil)
	})

	run("payloads are purged, and their pending deliveries end", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"))
		t.enqueue(newEvent("acct", "1"), 1)
		hold(t, true, "a")
		before := t.delivery("acct", "1")
		t.purge(driver.Purge{Payloads: t.now().Add(time.Minute)})
		t.wantPurged(before)
		wantSame(t, "Pending", t.backlog("a").Pending, 0)
	})

	run("Backlog counts pending deliveries and held ones, and ignores held ones for OldestDue", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"), newWebhook("other", "c"))
		hold(t, true, "a", "b")
		t.enqueue(newEvent("acct", "1"), 2)
		wantSame(t, "Backlog of all webhooks", t.backlog(""), driver.Backlog{Pending: 2, Held: 2})
		wantSame(t, "Backlog of one webhook", t.backlog("a"), driver.Backlog{Pending: 1})
		hold(t, false, "a", "b")
		got := t.backlog("")
		wantSame(t, "Held after the release", got.Held, 0)
		wantSame(t, "OldestDue is zero after the release", got.OldestDue.IsZero(), false)
	})

	run("FailingWebhooks omits webhooks on hold", func(t *tester) {
		w := newWebhook("acct", "a")
		w.FailingSince, w.FailingEvent, w.FailedAgain = some, "event", true
		t.createWebhooks(w)
		failing := func() int {
			list, err := t.store.FailingWebhooks(t.Context(), some, driver.ListQuery{Limit: 9})
			t.must(err)
			return len(list)
		}
		wantSame(t, "failing", failing(), 1)
		hold(t, true, "a")
		wantSame(t, "failing webhooks while on hold", failing(), 0)
		hold(t, false, "a")
		wantSame(t, "failing webhooks after the release", failing(), 1)
	})

	run("HeldWebhooks lists the webhooks of all accounts by descending ID, in pages", func(t *tester) {
		list := func(page driver.ListQuery) (ids []string) {
			t.Helper()
			found, err := t.store.HeldWebhooks(t.Context(), page)
			t.must(err)
			for _, w := range found {
				wantSame(t, "HeldWebhooks", w, t.webhook(w.Account, w.ID))
				ids = append(ids, w.ID)
			}
			return ids
		}
		all := driver.ListQuery{Limit: 9}
		wantSame(t, "without webhooks on hold", list(all), nil)
		other := newWebhook("other", "c")
		other.Held, other.Active = true, false
		t.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"), other, newWebhook("acct", "d"))
		hold(t, true, "a", "d")
		wantSame(t, "all", list(all), []string{"d", "c", "a"})
		wantSame(t, "first page", list(driver.ListQuery{Limit: 2}), []string{"d", "c"})
		wantSame(t, "next page", list(driver.ListQuery{Limit: 2, After: "c"}), []string{"a"})
		wantSame(t, "after an unused ID", list(driver.ListQuery{Limit: 9, After: "b"}), []string{"a"})
		wantSame(t, "after an ID above all", list(driver.ListQuery{Limit: 9, After: "e"}), []string{"d", "c", "a"})
		wantSame(t, "past the end", list(driver.ListQuery{Limit: 2, After: "a"}), nil)
		hold(t, false, "a")
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "d", nil, audit.Entry{}))
		wantSame(t, "after one was released and one deleted", list(all), []string{"c"})
	})
}

// durableHold tests that a webhook on hold stays on hold after a restart.
func durableHold(reopened func(name string, before, after func(*tester))) {
	reopened("a webhook on hold with pending deliveries", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"))
		t.enqueue(newEvent("acct", "1"), 1)
		t.updateWebhook("acct", "a", func(w *driver.Webhook) { w.Held = true })
		t.enqueue(newEvent("acct", "2"), 1)
	}, func(t *tester) {
		t.claimAll(0)
		t.updateWebhook("acct", "a", func(w *driver.Webhook) { w.Held = false })
		t.claimAll(2)
	})
}
