package storetest

import (
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
)

// failing tests FailingWebhooks, and how UpdateWebhook changes the health of webhooks.
func failing(run runner) {
	run("UpdateWebhook changes the health, and later attempts continue from it", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		for _, to := range []driver.WebhookHealth{
			{Active: true, FailingSince: at(1), WarnedAt: at(2), ProvenAt: at(3)},
			{OffReason: driver.OffFailing, OffAt: at(4), FailingSince: at(3), FailingEvent: "event", FailedAgain: true},
			{Active: true, WarnedAt: at(4), OffReason: "unknown reason"},
			{Active: true},
		} {
			got := t.updateWebhook("acct", "webhook", func(w *driver.Webhook) { w.WebhookHealth = to })
			wantSame(t, "UpdateWebhook", got.WebhookHealth, to)
			wantSame(t, "WebhookByID", t.webhook("acct", "webhook").WebhookHealth, to)
		}
		for i, began := range []string{"1", "2"} {
			t.settleEvent(newEvent("acct", began), 1, driver.GiveUp)
			t.updateWebhook("acct", "webhook", func(w *driver.Webhook) {
				wantSame(t, "FailingEvent passed to change", w.FailingEvent, began)
				if w.FailingSince = (time.Time{}); i == 0 {
					w.EndFailing()
				}
			})
		}
		wantSame(t, "FailingSince", t.webhook("acct", "webhook").FailingSince, time.Time{})
	})

	run("FailingWebhooks lists active webhooks that failed again, and failed for long enough", func(t *tester) {
		list := func(since time.Time, page driver.ListQuery) (ids []string) {
			t.Helper()
			found, err := t.store.FailingWebhooks(t.Context(), since, page)
			t.must(err)
			for _, w := range found {
				wantSame(t, "FailingWebhooks", w, t.webhook(w.Account, w.ID))
				ids = append(ids, w.ID)
			}
			return ids
		}
		want := func(ids ...string) {
			t.Helper()
			wantSame(t, "FailingWebhooks", list(at(5), driver.ListQuery{Limit: 9}), ids)
		}
		t.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"), newWebhook("other", "c"), newWebhook("acct", "well"))
		fail := func(account, id string, since time.Time, again bool) {
			t.Helper()
			t.updateWebhook(account, id, func(w *driver.Webhook) { w.FailingSince, w.FailingEvent, w.FailedAgain = since, "event", again })
		}
		want()
		for _, again := range []bool{false, true} {
			fail("acct", "a", at(1), again)
			fail("acct", "b", at(5), again)
			fail("other", "c", at(6), again)
			if !again {
				want()
			}
		}
		want("b", "a")
		wantSame(t, "FailingWebhooks before the second", list(at(5).Add(-time.Millisecond), driver.ListQuery{Limit: 9}), []string{"a"})
		wantSame(t, "all FailingWebhooks", list(at(6), driver.ListQuery{Limit: 9}), []string{"c", "b", "a"})
		wantSame(t, "first page", list(at(6), driver.ListQuery{Limit: 2}), []string{"c", "b"})
		wantSame(t, "next page", list(at(6), driver.ListQuery{Limit: 2, After: "b"}), []string{"a"})
		wantSame(t, "after an unused ID", list(at(6), driver.ListQuery{Limit: 2, After: "bb"}), []string{"b", "a"})
		wantSame(t, "after an ID above all", list(at(6), driver.ListQuery{Limit: 9, After: "d"}), []string{"c", "b", "a"})
		wantSame(t, "past the end", list(at(6), driver.ListQuery{Limit: 2, After: "a"}), nil)

		t.setActive("acct", "b", false)
		want("a")
		t.setActive("acct", "b", true)
		want("b", "a")
		t.updateWebhook("acct", "b", func(w *driver.Webhook) { w.EndFailing() })
		want("a")
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "a", nil, audit.Entry{}))
		want()
	})
}
