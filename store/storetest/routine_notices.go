package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/webhooks"
)

// slack is by how many routine notices a store may temporarily exceed [notices.MaxRoutine].
const slack = 1000

// renames returns n notices of a change of a key's name.
func renames(account, key string, from, n int) (list []notices.Notice) {
	for i := range n {
		renamed := newNotice(account, fmt.Sprintf("rename_%s_%06d", key, from+i))
		renamed.Action, renamed.Changed = notices.KeyChanged, []string{"name"}
		renamed.Target = notices.Target{Kind: notices.TargetKey, ID: key}
		list = append(list, renamed)
	}
	return list
}

// addMany stores new notices, 1,000 per call.
func (t *tester) addMany(list []notices.Notice) {
	t.Helper()
	for chunk := range slices.Chunk(list, 1000) {
		t.addNotices(chunk...)
	}
}

// routineNotices tests that a store bounds an account's routine notices, and keeps all others.
func routineNotices(run runner) {
	key := func(id string) notices.Query {
		return notices.Query{Target: notices.Target{Kind: notices.TargetKey, ID: id}, Limit: 1000}
	}
	evidence := func(id, key string) notices.Notice {
		n := newNotice("acct", id)
		n.Action, n.Target, n.Pending = notices.KeyCreated, notices.Target{Kind: notices.TargetKey, ID: key}, false
		return n
	}
	// wantLatest checks that a list ends with the latest notices, and its length.
	wantLatest := func(t *tester, got, all []string, least, most int) {
		t.Helper()
		if len(got) < least || len(got) > most {
			t.Fatalf("%d routine notices, want %d to %d", len(got), least, most)
		}
		want := slices.Clone(all[len(all)-len(got):])
		slices.Reverse(want)
		wantSame(t, "latest notices", got, want)
	}
	renamed := notices.Query{Actions: []notices.Action{notices.KeyChanged, notices.DeliveryRedelivered}, Limit: 1000}

	run("a key renamed in a loop displaces no other notices", func(t *tester) {
		scopes := evidence("scopes", "key")
		scopes.Action, scopes.Changed = notices.KeyChanged, []string{"name", "scopes"}
		deleted := evidence("deleted", "key")
		deleted.Action = notices.KeyDeleted
		all := renames("acct", "key", 0, notices.MaxRoutine+slack+500)
		other := renames("other", "key", 0, 3)

		t.addNotices(evidence("created", "key"))
		t.addMany(slices.Concat(all[:10], []notices.Notice{scopes}, other, all[10:20]))
		var pages []notices.Query // each goes on at a notice that will be pushed out
		for _, query := range []notices.Query{{}, key("key")} {
			query.Limit = 5
			page, err := t.store.ListNotices(t.Context(), "acct", query)
			t.must(err)
			query.After = page.Next
			pages = append(pages, query)
		}
		t.addMany(all[20:])
		t.addNotices(deleted)
		for _, query := range pages {
			wantSame(t, "the pages after one of before", t.noticeIDs("acct", query), []string{"scopes", "created"})
		}
		for name, query := range map[string]notices.Query{"of the account": {Limit: 1000}, "of the key": key("key")} {
			ids := t.noticeIDs("acct", query)
			last := len(ids) - 1
			wantSame(t, name, []string{ids[0], ids[last-1], ids[last]}, []string{"deleted", "scopes", "created"})
			wantLatest(t, ids[1:last-1], idsOf(all), notices.MaxRoutine, notices.MaxRoutine+slack)
		}
		wantSame(t, "notices of the other account", len(t.noticesOf("other", notices.Query{})), 3)
		list, err := t.store.PendingNotices(t.Context(), "acct", 20_000)
		t.must(err)
		if len(list) > notices.MaxRoutine+slack {
			t.Errorf("%d notices pending, want at most %d", len(list), notices.MaxRoutine+slack)
		}

		now, err := t.store.Now(t.Context())
		t.must(err)
		t.purge(webhooks.Purge{Notices: now.Add(time.Hour), Limit: 5000})
		t.wantNotices()
		ids, _ := t.pendingNotices()
		wantSame(t, "pending", len(ids), 0)
		t.addMany(renames("acct", "key", len(all), 3))
		wantSame(t, "afterwards", len(t.noticesOf("acct", notices.Query{})), 3)
	})

	run("the limit applies to all targets of an account together", func(t *tester) {
		var all, others []notices.Notice
		for i := range notices.MaxRoutine + slack + 500 {
			id := numbered("key", i%7)
			if i >= 7 && i < 14 {
				id = numbered("rare", i) // changed only once
			}
			n := renames("acct", id, i, 1)[0]
			if i%2 == 1 {
				n.Action, n.Changed = notices.DeliveryRedelivered, nil
			}
			all = append(all, n)
			if i%1000 == 3 {
				other := evidence(numbered("other", i), id)
				all, others = append(all, other), append(others, other)
			}
		}
		t.addMany(all)
		var routine []string
		for _, n := range all {
			if n.Action != notices.KeyCreated {
				routine = append(routine, n.ID)
			}
		}
		got := t.noticeIDs("acct", renamed)
		wantLatest(t, got, routine, notices.MaxRoutine, notices.MaxRoutine+slack)
		wantSame(t, "all", len(t.noticeIDs("acct", notices.Query{Limit: 1000})), len(got)+len(others))
		wantSame(t, "notices of a target changed once", t.noticeIDs("acct", key("rare_000007")), nil)
		sum := 0
		for i := range 7 {
			sum += len(t.noticesOf("acct", key(numbered("key", i))))
		}
		wantSame(t, "sum over all targets", sum, len(got)+len(others))

		t.addNotices(renames("acct", "rare_000007", 99_999, 1)...)
		wantSame(t, "later notices of the target", t.noticeIDs("acct", key("rare_000007")), []string{"rename_rare_000007_099999"})

		for more := true; more; {
			var err error
			_, more, err = t.store.EraseAccount(t.Context(), "acct", 2000)
			t.must(err)
		}
		wantSame(t, "notices of the erased account", len(t.noticesOf("acct", notices.Query{})), 0)
	})
}
