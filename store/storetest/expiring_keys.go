package storetest

import (
	"slices"
	"strings"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
)

// expiring returns a key that expires at millis(after).
func expiring(account, id string, after int) driver.Key {
	key := newKey(account, id)
	key.ExpiresAt = millis(after)
	return key
}

// expiries returns the accounts and IDs of all keys that the query selects. It reads them page by
// page.
func (t *tester) expiries(query driver.ExpiryQuery) (all []string) {
	t.Helper()
	for {
		page, err := t.store.ExpiringKeys(t.Context(), query)
		t.must(err)
		if len(page) > query.Limit {
			t.Fatalf("page of at most %d keys has %d", query.Limit, len(page))
		}
		for _, key := range page {
			wantSame(t, "ExpiringKeys", key, t.key(key.Account, key.ID))
			all = append(all, key.Account+" "+key.ID)
		}
		if len(page) == 0 {
			return all
		}
		query.After = driver.ExpiryOf(&page[len(page)-1])
	}
}

func expiringKeys(run runner) {
	late := some.AddDate(100, 0, 0)
	want := func(t *tester, ids ...string) {
		t.Helper()
		for _, limit := range []int{1, 2, 99} {
			wantSame(t, "ExpiringKeys", t.expiries(driver.ExpiryQuery{Before: late, Limit: limit}), ids)
		}
	}

	run("lists the expiring keys of all accounts by ExpiresAt, Account and ID, in pages of any size", func(t *tester) {
		want(t)
		t.createKeys(
			newKey("acct", "never"), rotatedKey("acct", "rotated"), expiring("b", "a", 5), expiring("ab", "b", 5), expiring("ab", "a", 5),
			expiring("a", "z", 5), expiring("acct", "first", -5), expiring("acct", "last", 99_999_999), expiring("a", "next", 6),
		)
		want(t, "acct first", "a z", "ab a", "ab b", "b a", "a next", "acct rotated", "acct last")
	})

	run("compares accounts and IDs byte by byte", func(t *tester) {
		var keys []driver.Key
		for _, account := range oddStrings {
			keys = append(keys, expiring(account, "id of "+account, 1), expiring("acct", account, 1))
		}
		t.createKeys(keys...)
		slices.SortFunc(keys, func(a, b driver.Key) int {
			return 2*strings.Compare(a.Account, b.Account) + strings.Compare(a.ID, b.ID)
		})
		var ids []string
		for _, key := range keys {
			ids = append(ids, key.Account+" "+key.ID)
		}
		want(t, ids...)
	})

	run("lists keys with any expiry", func(t *tester) {
		var ids []string
		for i, year := range []int{1, 1000, 1969, 1970, 1971, 2262, 2263, 9999} {
			key := newKey("acct", numbered("key", i))
			key.ExpiresAt = time.Date(year, 12, 30, 23, 59, 59, 999e6, time.UTC)
			t.createKeys(key)
			ids = append(ids, "acct "+key.ID)
		}
		wantSame(t, "ExpiringKeys", t.expiries(driver.ExpiryQuery{Before: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), Limit: 3}), ids)
	})

	run("lists keys after After and before Before, to the millisecond", func(t *tester) {
		t.createKeys(expiring("acct", "a", 1), expiring("acct", "c", 1), expiring("b", "b", 1), expiring("acct", "d", 2))
		for _, test := range []struct {
			after  driver.Expiry
			before int
			want   []string
		}{
			{driver.Expiry{At: millis(0)}, 1, nil},
			{driver.Expiry{At: millis(0)}, 2, []string{"acct a", "acct c", "b b"}},
			{driver.Expiry{At: millis(1)}, 2, []string{"acct a", "acct c", "b b"}},
			{driver.Expiry{At: millis(1).Add(999 * time.Microsecond)}, 2, []string{"acct a", "acct c", "b b"}},
			{driver.Expiry{At: millis(1).In(time.FixedZone("", 3600)), Account: "acct", ID: "a"}, 9, []string{"acct c", "b b", "acct d"}},
			{driver.Expiry{At: millis(1), Account: "acct", ID: "b"}, 9, []string{"acct c", "b b", "acct d"}},
			{driver.Expiry{At: millis(1), Account: "acct", ID: "c"}, 9, []string{"b b", "acct d"}},
			{driver.Expiry{At: millis(1), Account: "azz", ID: "a"}, 9, []string{"b b", "acct d"}},
			{driver.Expiry{At: millis(1), Account: "b", ID: "b"}, 9, []string{"acct d"}},
			{driver.Expiry{At: millis(2), Account: "acct", ID: "d"}, 9, nil},
			{driver.Expiry{At: millis(9)}, 99, nil},
			{driver.Expiry{At: millis(5)}, 1, nil},
		} {
			query := driver.ExpiryQuery{After: test.after, Before: millis(test.before), Limit: 9}
			wantSame(t, "ExpiringKeys", t.expiries(query), test.want)
			query.Before = query.Before.Add(999 * time.Microsecond)
			wantSame(t, "ExpiringKeys, rounded", t.expiries(query), test.want)
		}
	})

	run("reflects every change of a key", func(t *tester) {
		move := func(id string, after int) {
			t.Helper()
			t.updateKey(id, func(key *driver.Key) { key.ExpiresAt = millis(after) })
		}
		t.createKeys(expiring("acct", "a", 1), newKey("acct", "b"), expiring("acct", "c", 3))
		want(t, "acct a", "acct c")
		move("b", 2)
		want(t, "acct a", "acct b", "acct c")
		move("a", 4)
		want(t, "acct b", "acct c", "acct a")
		t.updateKey("c", func(key *driver.Key) {
			key.Previous, key.PreviousExpiresAt, key.Hash = key.Hash, millis(0), hashOf("new")
		})
		want(t, "acct b", "acct c", "acct a")
		t.updateKey("b", func(key *driver.Key) { key.ExpiresAt = time.Time{} })
		want(t, "acct c", "acct a")
		t.must(t.store.RecordKeyUse(t.Context(), []driver.KeyUse{{Account: "acct", ID: "c", At: some}}))
		t.must(t.store.DeleteKey(t.Context(), "acct", "a", nil, audit.Entry{}))
		want(t, "acct c")
		_, err := t.store.UpdateKey(t.Context(), "acct", "c", func(key *driver.Key, _ *audit.Entry) error {
			key.ExpiresAt = millis(9)
			key.Hash = newKey("acct", "b").Hash
			return nil
		})
		t.wantError("UpdateKey", err, apierr.ErrExists)
		t.wantError("CreateKey", t.store.CreateKey(t.Context(), expiring("acct", "c", 8), driver.CreateOptions{}), apierr.ErrExists)
		wantSame(t, "ExpiringKeys", t.expiries(driver.ExpiryQuery{After: driver.Expiry{At: millis(4)}, Before: late, Limit: 9}), nil)
		want(t, "acct c")
	})
}

// millis returns the time some plus n milliseconds.
func millis(n int) time.Time { return some.Add(time.Duration(n) * time.Millisecond) }
