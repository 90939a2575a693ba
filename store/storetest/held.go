package storetest

import (
	"time"

	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/webhooks"
)

// held tests what stores do for webhooks that are on hold.
func held(run runner) {
	hold := func(t *tester, held bool, ids ...string) {
		t.Helper()
		for _, id := range ids {
			t.updateWebhook("acct", id, func(w *webhooks.Webhook) { w.Held = held })
		}
	}
	claimed := func(t *tester) (of []string) {
		t.Helper()
		for _, task := range t.claim(99) {
			of = append(of, task.Webhook.ID+" "+task.Event.ID)
		}
		return of
	}

	run("claims pass it over, whether or not it was on hold when the event was published", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"))
		t.enqueue(newEvent("acct", "1"), 2)
		hold(t, true, "a")
		t.enqueue(newEvent("acct", "2"), 2)
		wantSame(t, "claimed", claimed(t), []string{"b 1", "b 2"})
		for _, d := range t.deliveries("acct", "2") {
			wantSame(t, "State for "+d.WebhookID, d.State, webhooks.Pending)
		}
		hold(t, false, "a")
		wantSame(t, "claimed once it is released", claimed(t), []string{"a 1", "a 2"})
	})

	run("it is on hold from its creation on", func(t *tester) {
		w := newWebhook("acct", "a")
		w.Held = true
		t.createWebhooks(w)
		t.enqueue(newEvent("acct", "1"), 1)
		wantSame(t, "claimed", claimed(t), nil)
		hold(t, false, "a")
		wantSame(t, "claimed once it is released", claimed(t), []string{"a 1"})
	})

	run("probes, redeliveries and recoveries wait, too", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"))
		t.settleEvent(newEvent("acct", "1"), 1, webhooks.GiveUp)
		t.settleEvent(newEvent("acct", "2"), 1, webhooks.GiveUp)
		hold(t, true, "a")
		t.must(t.store.Redeliver(t.Context(), "acct", "a", "1", notices.Notice{}))
		t.createRecoveries(newRecovery("acct", "a", "recovery", webhooks.Dead))
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

	run("turning it on or off does not end it, nor does it turn it on", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"))
		t.enqueue(newEvent("acct", "1"), 1)
		hold(t, true, "a")
		t.setActive("acct", "a", false)
		t.setActive("acct", "a", true)
		wantSame(t, "claimed", claimed(t), nil)
		t.setActive("acct", "a", false)
		hold(t, false, "a")
		wantSame(t, "claimed while it is off", claimed(t), nil)
		hold(t, true, "a")
		t.enqueue(newEvent("acct", "2"), 0)
		wantSame(t, "State of what is published while it is off", t.delivery("acct", "2").State, webhooks.Skipped)
		t.setActive("acct", "a", true)
		hold(t, false, "a")
		wantSame(t, "claimed in the end", claimed(t), []string{"a 1"})
	})

	run("leases of before are settled, and what is to be tried again waits", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"))
		t.enqueue(newEvent("acct", "1"), 1)
		t.enqueue(newEvent("acct", "2"), 1)
		tasks := t.claimAll(2)
		hold(t, true, "a")
		t.settle(settlement(tasks[0], webhooks.Deliver), settlement(tasks[1], webhooks.Retry))
		wantSame(t, "State", t.delivery("acct", "1").State, webhooks.Delivered)
		time.Sleep(5 * time.Millisecond)
		wantSame(t, "claimed", claimed(t), nil)
	})

	run("its payloads are purged, and what is pending of them ends", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"))
		t.enqueue(newEvent("acct", "1"), 1)
		hold(t, true, "a")
		before := t.delivery("acct", "1")
		t.purge(webhooks.Purge{Payloads: t.now().Add(time.Minute)})
		t.wantPurged(before)
		wantSame(t, "Pending", t.backlog("a").Pending, 0)
	})

	run("Backlog counts what is pending and how many are on hold, and its due is not overdue", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"), newWebhook("other", "c"))
		hold(t, true, "a", "b")
		t.enqueue(newEvent("acct", "1"), 2)
		wantSame(t, "Backlog of all", t.backlog(""), webhooks.Backlog{Pending: 2, Held: 2})
		wantSame(t, "Backlog of one", t.backlog("a"), webhooks.Backlog{Pending: 1})
		hold(t, false, "a", "b")
		got := t.backlog("")
		wantSame(t, "Held once they are released", got.Held, 0)
		wantSame(t, "something is overdue then", got.OldestDue.IsZero(), false)
	})

	run("FailingWebhooks leaves it out", func(t *tester) {
		w := newWebhook("acct", "a")
		w.FailingSince, w.FailingEvent, w.FailedAgain = some, "event", true
		t.createWebhooks(w)
		failing := func() int {
			list, err := t.store.FailingWebhooks(t.Context(), some, webhooks.Page{Limit: 9})
			t.must(err)
			return len(list)
		}
		wantSame(t, "failing", failing(), 1)
		hold(t, true, "a")
		wantSame(t, "failing while it is on hold", failing(), 0)
		hold(t, false, "a")
		wantSame(t, "failing once it is released", failing(), 1)
	})

	run("HeldWebhooks lists those of all accounts by descending id, in pages", func(t *tester) {
		list := func(page webhooks.Page) (ids []string) {
			t.Helper()
			found, err := t.store.HeldWebhooks(t.Context(), page)
			t.must(err)
			for _, w := range found {
				wantSame(t, "HeldWebhooks", w, t.webhook(w.Account, w.ID))
				ids = append(ids, w.ID)
			}
			return ids
		}
		all := webhooks.Page{Limit: 9}
		wantSame(t, "of none", list(all), nil)
		other := newWebhook("other", "c")
		other.Held, other.Active = true, false
		t.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"), other, newWebhook("acct", "d"))
		hold(t, true, "a", "d")
		wantSame(t, "all", list(all), []string{"d", "c", "a"})
		wantSame(t, "a page", list(webhooks.Page{Limit: 2}), []string{"d", "c"})
		wantSame(t, "the next", list(webhooks.Page{Limit: 2, After: "c"}), []string{"a"})
		wantSame(t, "after one that is not there", list(webhooks.Page{Limit: 9, After: "b"}), []string{"a"})
		wantSame(t, "after one that was before all", list(webhooks.Page{Limit: 9, After: "e"}), []string{"d", "c", "a"})
		wantSame(t, "past the end", list(webhooks.Page{Limit: 2, After: "a"}), nil)
		hold(t, false, "a")
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "d", nil, notices.Notice{}))
		wantSame(t, "once one was released and one deleted", list(all), []string{"c"})
	})
}

// durableHold tests that a webhook stays on hold.
func durableHold(reopened func(name string, before, after func(*tester))) {
	reopened("a webhook that is on hold, and what is pending for it", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"))
		t.enqueue(newEvent("acct", "1"), 1)
		t.updateWebhook("acct", "a", func(w *webhooks.Webhook) { w.Held = true })
		t.enqueue(newEvent("acct", "2"), 1)
	}, func(t *tester) {
		t.claimAll(0)
		t.updateWebhook("acct", "a", func(w *webhooks.Webhook) { w.Held = false })
		t.claimAll(2)
	})
}
