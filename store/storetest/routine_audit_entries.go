package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
)

// slack is the number of routine audit entries by which a store may temporarily exceed
// [audit.MaxRoutine].
const slack = 1000

// renames returns n audit entries for changes of a key's name. Their numbers begin with from.
func renames(account, key string, from, n int) (list []audit.Entry) {
	for i := range n {
		renamed := newAuditEntry(account, fmt.Sprintf("rename_%s_%06d", key, from+i))
		renamed.Action, renamed.Changed = audit.KeyChanged, []string{"name"}
		renamed.Target = audit.Target{Kind: audit.TargetKey, ID: key}
		list = append(list, renamed)
	}
	return list
}

// addMany stores new audit entries, 1,000 per call.
func (t *tester) addMany(list []audit.Entry) {
	t.Helper()
	for chunk := range slices.Chunk(list, 1000) {
		t.addAuditEntries(chunk...)
	}
}

// routineAuditEntries tests that a store bounds an account's routine audit entries, and keeps all
// others.
func routineAuditEntries(run runner) {
	key := func(id string) audit.Query {
		return audit.Query{Target: audit.Target{Kind: audit.TargetKey, ID: id}, Limit: 1000}
	}
	evidence := func(id, key string) audit.Entry {
		n := newAuditEntry("acct", id)
		n.Action, n.Target, n.Pending = audit.KeyCreated, audit.Target{Kind: audit.TargetKey, ID: key}, false
		return n
	}
	// wantLatest checks that got holds between least and most entries, and that these are the
	// latest entries of all, newest first.
	wantLatest := func(t *tester, got, all []string, least, most int) {
		t.Helper()
		if len(got) < least || len(got) > most {
			t.Fatalf("%d routine audit entries, want %d to %d", len(got), least, most)
		}
		want := slices.Clone(all[len(all)-len(got):])
		slices.Reverse(want)
		wantSame(t, "latest audit entries", got, want)
	}
	renamed := audit.Query{Actions: []audit.Action{audit.KeyChanged, audit.DeliveryRedelivered}, Limit: 1000}

	run("a key renamed in a loop displaces no other audit entries", func(t *tester) {
		scopes := evidence("scopes", "key")
		scopes.Action, scopes.Changed = audit.KeyChanged, []string{"name", "scopes"}
		deleted := evidence("deleted", "key")
		deleted.Action = audit.KeyDeleted
		all := renames("acct", "key", 0, audit.MaxRoutine+slack+500)
		other := renames("other", "key", 0, 3)

		t.addAuditEntries(evidence("created", "key"))
		t.addMany(slices.Concat(all[:10], []audit.Entry{scopes}, other, all[10:20]))
		var pages []audit.Query // each page begins after an audit entry that the store will remove
		for _, query := range []audit.Query{{}, key("key")} {
			query.Limit = 5
			page, err := t.store.ListAuditEntries(t.Context(), "acct", query)
			t.must(err)
			query.After = page.Next
			pages = append(pages, query)
		}
		t.addMany(all[20:])
		t.addAuditEntries(deleted)
		for _, query := range pages {
			wantSame(t, "the pages after one of before", t.entryIDs("acct", query), []string{"scopes", "created"})
		}
		for name, query := range map[string]audit.Query{"of the account": {Limit: 1000}, "of the key": key("key")} {
			ids := t.entryIDs("acct", query)
			last := len(ids) - 1
			wantSame(t, name, []string{ids[0], ids[last-1], ids[last]}, []string{"deleted", "scopes", "created"})
			wantLatest(t, ids[1:last-1], idsOf(all), audit.MaxRoutine, audit.MaxRoutine+slack)
		}
		wantSame(t, "audit entries of the other account", len(t.entriesOf("other", audit.Query{})), 3)
		list, err := t.store.PendingAuditEntries(t.Context(), "acct", 20_000)
		t.must(err)
		if len(list) > audit.MaxRoutine+slack {
			t.Errorf("%d audit entries pending, want at most %d", len(list), audit.MaxRoutine+slack)
		}

		now, err := t.store.Now(t.Context())
		t.must(err)
		t.purge(driver.Purge{AuditEntries: now.Add(time.Hour), Limit: 5000})
		t.wantAuditEntries()
		ids, _ := t.pendingAuditEntries()
		wantSame(t, "pending", len(ids), 0)
		t.addMany(renames("acct", "key", len(all), 3))
		wantSame(t, "afterwards", len(t.entriesOf("acct", audit.Query{})), 3)
	})

	run("the limit applies to all targets of an account together", func(t *tester) {
		var all, others []audit.Entry
		for i := range audit.MaxRoutine + slack + 500 {
			id := numbered("key", i%7)
			if i >= 7 && i < 14 {
				id = numbered("rare", i) // this key changes only once
			}
			n := renames("acct", id, i, 1)[0]
			if i%2 == 1 {
				n.Action, n.Changed = audit.DeliveryRedelivered, nil
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
			if n.Action != audit.KeyCreated {
				routine = append(routine, n.ID)
			}
		}
		got := t.entryIDs("acct", renamed)
		wantLatest(t, got, routine, audit.MaxRoutine, audit.MaxRoutine+slack)
		wantSame(t, "all", len(t.entryIDs("acct", audit.Query{Limit: 1000})), len(got)+len(others))
		wantSame(t, "audit entries of a target changed once", t.entryIDs("acct", key("rare_000007")), nil)
		sum := 0
		for i := range 7 {
			sum += len(t.entriesOf("acct", key(numbered("key", i))))
		}
		wantSame(t, "sum over all targets", sum, len(got)+len(others))

		t.addAuditEntries(renames("acct", "rare_000007", 99_999, 1)...)
		wantSame(t, "later audit entries of the target", t.entryIDs("acct", key("rare_000007")), []string{"rename_rare_000007_099999"})

		for more := true; more; {
			var err error
			_, more, err = t.store.EraseAccount(t.Context(), "acct", 2000)
			t.must(err)
		}
		wantSame(t, "audit entries of the erased account", len(t.entriesOf("acct", audit.Query{})), 0)
	})
}
