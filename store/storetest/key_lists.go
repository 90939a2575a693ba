package storetest

import (
	"slices"

	"github.com/storageapi/storageapi/apikeys"
)

// listKeys tests ListKeys.
func listKeys(run runner) {
	list := func(t *tester, account, after string, limit int) []apikeys.Key {
		t.Helper()
		keys, err := t.store.ListKeys(t.Context(), account, apikeys.Page{After: after, Limit: limit})
		t.must(err)
		return keys
	}

	run("by descending id, in pages of any size", func(t *tester) {
		const n = 7
		want := make([]apikeys.Key, n)
		for _, i := range []int{3, 0, 6, 1, 5, 2, 4} { // not in the order of their ids
			want[n-1-i] = rotatedKey("ab", numbered("key", i))
			t.createKeys(want[n-1-i])
			for _, near := range []string{"a", "abc", "ab/", "ab:", "AB", "b"} {
				t.createKeys(newKey(near, numbered("a "+near, i)), newKey(near, numbered("z "+near, i)))
			}
		}
		for limit := 1; limit <= n+1; limit++ {
			var got []apikeys.Key
			for after := ""; ; {
				page := list(t, "ab", after, limit)
				if len(page) != min(limit, n-len(got)) {
					t.Fatalf("a page of at most %d after %d of %d keys has %d", limit, len(got), n, len(page))
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
			t.createKeys(newKey("acct", id))
		}
		slices.Sort(ids)
		slices.Reverse(ids)
		var got []string
		for len(got) < len(ids) {
			after := ""
			if len(got) > 0 {
				after = got[len(got)-1]
			}
			page := list(t, "acct", after, 4)
			if len(page) == 0 {
				break
			}
			for _, key := range page {
				got = append(got, key.ID)
			}
		}
		wantSame(t, "ids", got, ids)
	})

	run("an empty list past the end", func(t *tester) {
		wantSame(t, "list of an account without keys", list(t, "acct", "", 9), nil)
		t.createKeys(newKey("acct", "key"), newKey("acc", "a"), newKey("acctx", "a"))
		wantSame(t, "list after the last", list(t, "acct", "key", 9), nil)
		wantSame(t, "list after less than all", list(t, "acct", "a", 9), nil)
	})

	run("the id after which the page begins need not exist", func(t *tester) {
		a, c, e := newKey("acct", "a"), newKey("acct", "c"), newKey("acct", "e")
		t.createKeys(a, c, e, newKey("acct", "b"), newKey("acct", "d"), newKey("acct", "f"))
		for _, id := range []string{"b", "d", "f"} {
			t.must(t.store.DeleteKey(t.Context(), "acct", id, nil))
		}
		wantSame(t, "after f", list(t, "acct", "f", 9), []apikeys.Key{e, c, a})
		wantSame(t, "after d", list(t, "acct", "d", 1), []apikeys.Key{c})
		wantSame(t, "after b", list(t, "acct", "b", 9), []apikeys.Key{a})
		wantSame(t, "after more than all", list(t, "acct", "zzz", 2), []apikeys.Key{e, c})
		wantSame(t, "after one never there", list(t, "acct", "c5", 9), []apikeys.Key{c, a})
	})

	run("keys come with their last use", func(t *tester) {
		used, unused := newKey("acct", "a"), newKey("acct", "b")
		t.createKeys(used, unused)
		t.must(t.store.RecordKeyUse(t.Context(), []apikeys.KeyUse{{Account: "acct", ID: "a", At: some}}))
		used.LastUsedAt = some
		wantSame(t, "list", list(t, "acct", "", 9), []apikeys.Key{unused, used})
	})
}
