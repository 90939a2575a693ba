package storetest

import (
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
)

func accountSizes(run runner) {
	want := func(t *tester, want ...store.AccountSize) {
		t.Helper()
		var accounts []string
		for _, size := range want {
			accounts = append(accounts, size.Account)
		}
		got, err := t.store.AccountSizes(t.Context(), accounts)
		t.must(err)
		wantSame(t, "AccountSizes", got, want)
	}

	run("counts keys, webhooks and pending deliveries of each account, in the given order", func(t *tester) {
		want(t, store.AccountSize{Account: "none"})
		want(t)
		t.createKeys(newKey("acct", "a"), rotatedKey("acct", "b"), newKey("acct2", "c"), newKey("acc", "d"))
		t.createWebhooks(newWebhook("acct", "one"), newWebhook("acct", "two"), newWebhook("acct2", "three"))
		t.enqueueMany("acct", 3, 2)
		t.enqueue(newEvent("acct2", "event"), 1)
		want(t,
			store.AccountSize{Account: "acct2", Keys: 1, Webhooks: 1, Pending: 1},
			store.AccountSize{Account: "acct", Keys: 2, Webhooks: 2, Pending: 6},
			store.AccountSize{Account: "acct3"},
			store.AccountSize{Account: "acc", Keys: 1},
			store.AccountSize{Account: "acct", Keys: 2, Webhooks: 2, Pending: 6},
		)
	})

	run("keeps accounts with unusual names apart", func(t *tester) {
		var sizes []store.AccountSize
		for _, account := range oddStrings {
			t.createKeys(newKey(account, "key of "+account))
			t.createWebhooks(newWebhook(account, "webhook of "+account))
			sizes = append(sizes, store.AccountSize{Account: account, Keys: 1, Webhooks: 1})
		}
		want(t, sizes...)
	})

	run("counts claimed deliveries and deliveries of inactive webhooks, not settled or deleted ones", func(t *tester) {
		t.createKeys(newKey("acct", "a"), newKey("acct", "b"))
		t.createWebhooks(newWebhook("acct", "one"), newWebhook("acct", "two"))
		t.enqueueMany("acct", 2, 2)
		tasks := t.claimAll(4)
		t.settle(settlement(tasks[0], driver.Deliver), settlement(tasks[1], Postpone))
		t.setActive("acct", tasks[1].Webhook.ID, false)
		want(t, store.AccountSize{Account: "acct", Keys: 2, Webhooks: 2, Pending: 3})
		t.must(t.store.DeleteKey(t.Context(), "acct", "a", nil, audit.Entry{}))
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "one", nil, audit.Entry{}))
		left := t.backlog("two")
		want(t, store.AccountSize{Account: "acct", Keys: 1, Webhooks: 1, Pending: left.Pending})
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "two", nil, audit.Entry{}))
		want(t, store.AccountSize{Account: "acct", Keys: 1})
	})
}
