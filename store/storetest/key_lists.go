package storetest

import (
	"github.com/storageapi/storageapi/store/driver"
)

func listKeys(run runner) {
	keyRecords.lists(run)

	run("returns keys with their last use", func(t *tester) {
		used, unused := newKey("acct", "a"), newKey("acct", "b")
		t.createKeys(used, unused)
		t.must(t.store.RecordKeyUse(t.Context(), []driver.KeyUse{{Account: "acct", ID: "a", At: some}}))
		used.LastUsedAt = some
		wantSame(t, "list", keyRecords.listed(t, "acct", "", 9), []driver.Key{unused, used})
	})
}
