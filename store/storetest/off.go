package storetest

import (
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
)

func off(run runner) {
	list := func(t *tester, page driver.ListQuery) (ids []string) {
		t.Helper()
		found, err := t.store.OffWebhooks(t.Context(), page)
		t.must(err)
		for _, w := range found {
			wantSame(t, "OffWebhooks", w, t.webhook(w.Account, w.ID))
			ids = append(ids, w.ID)
		}
		return ids
	}
	want := func(t *tester, ids ...string) {
		t.Helper()
		wantSame(t, "OffWebhooks", list(t, driver.ListQuery{Limit: 99}), ids)
	}

	run("lists the inactive webhooks of all accounts by descending ID, in pages", func(t *tester) {
		want(t)
		b, d := newWebhook("other", "b"), newWebhook("acct", "d")
		b.Active, d.Active = false, false
		t.createWebhooks(newWebhook("acct", "a"), b, newWebhook("acct", "c"), d)
		want(t, "d", "b")
		t.setActive("acct", "a", false)
		want(t, "d", "b", "a")
		wantSame(t, "first page", list(t, driver.ListQuery{Limit: 2}), []string{"d", "b"})
		wantSame(t, "next page", list(t, driver.ListQuery{Limit: 2, After: "b"}), []string{"a"})
		wantSame(t, "after an unused ID", list(t, driver.ListQuery{Limit: 1, After: "c"}), []string{"b"})
		wantSame(t, "past the end", list(t, driver.ListQuery{Limit: 2, After: "a"}), nil)
		t.setActive("acct", "d", true)
		t.must(t.store.DeleteWebhook(t.Context(), "other", "b", nil, audit.Entry{}))
		t.updateWebhook("acct", "a", func(w *driver.Webhook) { w.Held, w.FailedAgain, w.FailingSince = true, true, some })
		want(t, "a")
		t.setActive("acct", "a", true)
		want(t)
	})
}
