package storetest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
)

// newAuditEntry returns a pending audit entry with all fields set.
func newAuditEntry(account, id string) audit.Entry {
	return audit.Entry{
		ID: id, At: some, Account: account, Action: audit.WebhookOff,
		Target: audit.Target{Kind: audit.TargetWebhook, ID: "webhook", Name: "https://example.com", Hint: "hint"}, Turned: "off",
		Actor:   audit.Actor{Kind: audit.ActorPerson, ID: "mia@example.com", Name: "Mia é", Hint: "sak_…abcd"},
		Changed: []string{"name", "active"}, RequestID: "request", ClientAddress: "2001:db8::1",
		Object: "event", Reason: "gone", Since: some.Add(-time.Hour), Until: some.Add(time.Hour), Pending: true,
	}
}

// entriesOf returns all audit entries that the query selects, newest first, read in pages of
// query.Limit.
func (t *tester) entriesOf(account string, query audit.Query) (list []audit.Entry) {
	t.Helper()
	if query.Limit == 0 {
		query.Limit = 100
	}
	for {
		page, err := t.store.ListAuditEntries(t.Context(), account, query)
		t.must(err)
		if len(page.Entries) > query.Limit {
			t.Fatalf("page has %d audit entries, want at most %d", len(page.Entries), query.Limit)
		}
		list = append(list, page.Entries...)
		if query.After = page.Next; page.Next == "" {
			return list
		}
	}
}

func idsOf(list []audit.Entry) (ids []string) {
	for _, n := range list {
		ids = append(ids, n.ID)
	}
	return ids
}

// entryIDs returns the IDs of the audit entries that the query selects, newest first.
func (t *tester) entryIDs(account string, query audit.Query) (ids []string) {
	t.Helper()
	return idsOf(t.entriesOf(account, query))
}

func (t *tester) wantAuditEntries(want ...string) {
	t.Helper()
	wantSame(t, "audit", t.entryIDs("acct", audit.Query{}), want)
}

// addAuditEntries stores new audit entries.
func (t *tester) addAuditEntries(list ...audit.Entry) {
	t.Helper()
	added, err := t.store.AddAuditEntries(t.Context(), list)
	t.must(err)
	if added != len(list) {
		t.Fatalf("AddAuditEntries stored %d audit entries, want %d", added, len(list))
	}
}

// allPending returns the pending audit entries of all accounts, sorted by number.
func (t *tester) allPending() (list []audit.Numbered) {
	t.Helper()
	accounts, err := t.store.PendingAccounts(t.Context(), "", 1000)
	t.must(err)
	for _, account := range append(accounts, "") {
		of, err := t.store.PendingAuditEntries(t.Context(), account, 1000)
		t.must(err)
		list = append(list, of...)
	}
	slices.SortFunc(list, func(a, b audit.Numbered) int { return cmp.Compare(a.Number, b.Number) })
	return list
}

// pendingAuditEntries returns the IDs and numbers of pending audit entries.
func (t *tester) pendingAuditEntries() (ids []string, numbers []uint64) {
	t.Helper()
	for _, n := range t.allPending() {
		ids, numbers = append(ids, n.Entry.ID), append(numbers, n.Number)
	}
	return ids, numbers
}

// addingAuditEntries tests AddAuditEntries.
func addingAuditEntries(run runner) {
	run("returns audit entries unchanged", func(t *tester) {
		full, bare := newAuditEntry("acct", "b"), audit.Entry{ID: "a", Account: "acct", At: some, Action: audit.KeyDeleted}
		odd := newAuditEntry("", "c")
		odd.Actor.ID, odd.Target.ID, odd.Changed = oddStrings[0], long("target", 128), oddStrings
		t.addAuditEntries(full, bare, odd)
		wantSame(t, "ListAuditEntries", t.entriesOf("acct", audit.Query{}), []audit.Entry{bare, full})
		wantSame(t, "ListAuditEntries of the empty account", t.entriesOf("", audit.Query{}), []audit.Entry{odd})
		list := t.allPending()
		if len(list) != 2 || list[0].Number < 1 {
			t.Fatalf("PendingAuditEntries = %v, want two with numbers", list)
		}
		wantSame(t, "pending", []audit.Entry{list[0].Entry, list[1].Entry}, []audit.Entry{full, odd})
	})

	run("skips known audit entries and adds the others of the call", func(t *tester) {
		t.addAuditEntries(newAuditEntry("acct", "a"))
		other := newAuditEntry("acct", "a")
		other.Action = audit.KeyDeleted
		added, err := t.store.AddAuditEntries(t.Context(), []audit.Entry{other, newAuditEntry("acct", "b"), newAuditEntry("other", "a")})
		t.must(err)
		wantSame(t, "added", added, 2)
		wantSame(t, "ListAuditEntries", t.entriesOf("acct", audit.Query{}), []audit.Entry{newAuditEntry("acct", "b"), newAuditEntry("acct", "a")})
	})

	run("stores an expiry audit entry only if the key expires at that time", func(t *tester) {
		key := newKey("acct", "key")
		key.ExpiresAt = some.Add(time.Hour)
		t.createKeys(key)
		other := newKey("other", "elsewhere")
		other.ExpiresAt = key.ExpiresAt
		t.createKeys(other)
		reason := ""
		add := func(id, target string, until time.Time, want int) {
			t.Helper()
			n := newAuditEntry("acct", id)
			n.Action, n.Target, n.Until, n.Reason = audit.KeyExpiring, audit.Target{Kind: audit.TargetKey, ID: target}, until, reason
			added, err := t.store.AddAuditEntries(t.Context(), []audit.Entry{n})
			t.must(err)
			wantSame(t, "added", added, want)
		}
		add("a", "key", key.ExpiresAt, 1)
		add("b", "key", key.ExpiresAt.Add(time.Hour), 0)
		add("c", "never", key.ExpiresAt, 0)
		add("d", "elsewhere", key.ExpiresAt, 0)
		t.createKeys(newKey("acct", "eternal"))
		add("h", "eternal", key.ExpiresAt, 0)
		reason = audit.ReasonLifetime
		add("i", "eternal", key.ExpiresAt, 1)
		add("j", "key", key.ExpiresAt, 0)
		add("k", "key", key.ExpiresAt.Add(time.Millisecond), 0)
		add("l", "key", key.ExpiresAt.Add(-time.Millisecond), 1)
		add("m", "never", key.ExpiresAt, 0)
		reason = ""
		_, err := t.store.UpdateKey(t.Context(), "acct", "key", func(k *driver.Key, _ *audit.Entry) error {
			k.ExpiresAt = k.ExpiresAt.Add(time.Hour)
			return nil
		})
		t.must(err)
		add("e", "key", key.ExpiresAt, 0)
		add("f", "key", key.ExpiresAt.Add(time.Hour), 1)
		t.must(t.store.DeleteKey(t.Context(), "acct", "key", nil, audit.Entry{}))
		add("g", "key", key.ExpiresAt.Add(time.Hour), 0)
		t.wantAuditEntries("f", "l", "i", "a")
	})

	run("stores audit entries with the same ID once, also concurrently", func(t *tester) {
		counts := make([]int, 8)
		inParallel(len(counts), func(i int) {
			var err error
			if counts[i], err = t.store.AddAuditEntries(t.Context(), []audit.Entry{newAuditEntry("acct", "a")}); err != nil {
				t.Error(err)
			}
		})
		slices.Sort(counts)
		wantSame(t, "added", counts, []int{0, 0, 0, 0, 0, 0, 0, 1})
		ids, _ := t.pendingAuditEntries()
		wantSame(t, "pending", ids, []string{"a"})
	})

	run("purges audit entries by their time of storing, also pending ones", func(t *tester) {
		for i := range 5 {
			t.addAuditEntries(newAuditEntry("acct", numbered("n", i)))
		}
		now, err := t.store.Now(t.Context())
		t.must(err)
		t.purge(driver.Purge{AuditEntries: now.Add(-time.Hour), Limit: 99})
		t.purge(driver.Purge{Limit: 99})
		_, old := t.pendingAuditEntries()
		if len(old) != 5 || len(t.entriesOf("acct", audit.Query{})) != 5 {
			t.Errorf("%d audit entries pending, want 5", len(old))
		}
		t.purge(driver.Purge{AuditEntries: now.Add(time.Hour), Limit: 2})
		ids, _ := t.pendingAuditEntries()
		wantSame(t, "pending", ids, nil)
		t.wantAuditEntries()
		t.addAuditEntries(newAuditEntry("acct", "later"))
		t.must(t.store.TakeAuditEntries(t.Context(), old)) // the store may have purged them already
		ids, _ = t.pendingAuditEntries()
		wantSame(t, "pending", ids, []string{"later"})
	})
}

func listingAuditEntries(run runner) {
	run("lists the audit entries selected by a query, newest first, in pages", func(t *tester) {
		var all []audit.Entry
		for i := range 12 {
			n := newAuditEntry("acct", numbered("n", i))
			n.At = some.Add(time.Duration(i) * time.Minute)
			n.Target = []audit.Target{{Kind: audit.TargetKey, ID: "a"}, {Kind: audit.TargetKey, ID: "b"}, {Kind: audit.TargetWebhook, ID: "a"}}[i%3]
			n.Action = []audit.Action{audit.KeyCreated, audit.KeyDeleted}[i%2]
			all = append(all, n)
			t.addAuditEntries(n, newAuditEntry("other", numbered("n", i)))
		}
		for _, query := range []audit.Query{
			{}, {Target: audit.Target{Kind: audit.TargetKey}}, {Target: audit.Target{Kind: audit.TargetKey, ID: "a"}},
			{Target: audit.Target{Kind: audit.TargetWebhook, ID: "b"}}, {Actions: []audit.Action{audit.KeyDeleted}},
			{Actions: []audit.Action{audit.KeyDeleted, audit.KeyCreated}}, {Since: some.Add(3 * time.Minute)}, {Until: some.Add(3 * time.Minute)},
			{Since: some.Add(time.Minute), Until: some.Add(9 * time.Minute), Actions: []audit.Action{audit.KeyCreated}, Target: audit.Target{Kind: audit.TargetKey}},
		} {
			var want []string
			for _, n := range slices.Backward(all) {
				if query.Matches(&n) {
					want = append(want, n.ID)
				}
			}
			for _, query.Limit = range []int{1, 2, 5, 99} {
				wantSame(t, "ListAuditEntries", t.entryIDs("acct", query), want)
			}
		}
		wantSame(t, "ListAuditEntries", t.entryIDs("nothing", audit.Query{}), nil)
	})

	run("lists in the order of commits, not by the clocks of nodes", func(t *tester) {
		key, webhook := audit.Target{Kind: audit.TargetKey, ID: "a"}, audit.Target{Kind: audit.TargetWebhook, ID: "a"}
		for i, id := range []string{"m", "z", "a", "n", "b", "y"} {
			n := newAuditEntry("acct", id)
			n.Target = []audit.Target{key, webhook}[i%2]
			// The name and hint do not identify the target.
			n.Target.Name, n.Target.Hint = numbered("name", i), numbered("hint", i)
			t.addAuditEntries(n)
		}
		for _, limit := range []int{1, 2, 9} {
			wantSame(t, "audit entries of the account", t.entryIDs("acct", audit.Query{Limit: limit}), []string{"y", "b", "n", "a", "z", "m"})
			wantSame(t, "audit entries of the target", t.entryIDs("acct", audit.Query{Target: key, Limit: limit}), []string{"b", "a", "m"})
		}
	})

	run("pages continue after a purge, and reveal nothing about other accounts", func(t *tester) {
		for i := range 6 {
			t.addAuditEntries(newAuditEntry("acct", numbered("n", i)), newAuditEntry("other", numbered("o", i)))
		}
		page, err := t.store.ListAuditEntries(t.Context(), "acct", audit.Query{Limit: 2})
		t.must(err)
		t.addAuditEntries(newAuditEntry("acct", "later"))
		target := newAuditEntry("acct", "").Target
		for _, query := range []audit.Query{{After: page.Next, Limit: 2}, {After: page.Next, Limit: 2, Target: target}} {
			next, err := t.store.ListAuditEntries(t.Context(), "acct", query)
			t.must(err)
			wantSame(t, "next page", idsOf(next.Entries), []string{"n_000003", "n_000002"})
		}
		other, err := t.store.ListAuditEntries(t.Context(), "other", audit.Query{After: page.Next, Limit: 99})
		t.must(err)
		for _, n := range other.Entries {
			wantSame(t, "account", n.Account, "other")
		}
		now, err := t.store.Now(t.Context())
		t.must(err)
		t.purge(driver.Purge{AuditEntries: now.Add(time.Hour), Limit: 99})
		next, err := t.store.ListAuditEntries(t.Context(), "acct", audit.Query{After: page.Next, Limit: 2})
		t.must(err)
		wantSame(t, "next page", len(next.Entries), 0)
		t.addAuditEntries(newAuditEntry("acct", "again"))
		t.wantAuditEntries("again")
	})

	run("a query for a target examines no other audit entries", func(t *tester) {
		first := newAuditEntry("acct", "first")
		first.Target.ID = "rare"
		t.addAuditEntries(first)
		var list []audit.Entry
		for i := range 11_000 {
			list = append(list, newAuditEntry("acct", numbered("n", i)))
		}
		for chunk := range slices.Chunk(list, 1000) {
			t.addAuditEntries(chunk...)
		}
		page, err := t.store.ListAuditEntries(t.Context(), "acct", audit.Query{Target: first.Target, Limit: 9})
		t.must(err)
		wantSame(t, "page", idsOf(page.Entries), []string{"first"})
		wantSame(t, "Next", page.Next, "")
	})
}

func takingAuditEntries(run runner) {
	run("PendingAuditEntries returns an account's audit entries in the order of commits, until they are taken", func(t *tester) {
		for i := range 6 {
			n := newAuditEntry(numbered("acct", i%2), numbered("n", 9-i))
			n.Pending = i != 3
			t.addAuditEntries(n)
		}
		ids, numbers := t.pendingAuditEntries()
		wantSame(t, "pending", ids, []string{"n_000009", "n_000008", "n_000007", "n_000005", "n_000004"})
		of := func(account string, limit int) (ids []string) {
			t.Helper()
			list, err := t.store.PendingAuditEntries(t.Context(), account, limit)
			t.must(err)
			for _, n := range list {
				ids = append(ids, n.Entry.ID)
			}
			return ids
		}
		wantSame(t, "pending audit entries of the first account", of("acct_000000", 9), []string{"n_000009", "n_000007", "n_000005"})
		wantSame(t, "first two pending audit entries", of("acct_000000", 2), []string{"n_000009", "n_000007"})
		wantSame(t, "pending audit entries of the second account", of("acct_000001", 9), []string{"n_000008", "n_000004"})
		wantSame(t, "pending audit entries of another account", of("acct_00000", 9), nil)
		wantSame(t, "pending audit entries of the empty account", of("", 9), nil)

		t.must(t.store.TakeAuditEntries(t.Context(), []uint64{numbers[1], numbers[3], numbers[4] + 1000}))
		ids, _ = t.pendingAuditEntries()
		wantSame(t, "pending", ids, []string{"n_000009", "n_000007", "n_000004"})
		t.must(t.store.TakeAuditEntries(t.Context(), []uint64{numbers[1]}))
		for _, n := range t.entriesOf("acct_000000", audit.Query{}) {
			if want := n.ID != "n_000005"; n.Pending != want {
				t.Errorf("%s: Pending = %v, want %v", n.ID, n.Pending, want)
			}
		}
	})

	run("PendingAccounts lists accounts with pending audit entries, in order", func(t *tester) {
		for i, account := range []string{"b", "", "a\x01", "ab", "a", "taken", "ä", "b"} {
			t.addAuditEntries(newAuditEntry(account, numbered("n", i)))
		}
		old := newAuditEntry("never", "n")
		old.Pending = false
		t.addAuditEntries(old)
		list, err := t.store.PendingAuditEntries(t.Context(), "taken", 9)
		t.must(err)
		t.must(t.store.TakeAuditEntries(t.Context(), []uint64{list[0].Number}))
		for after, want := range map[string][]string{"": {"a", "a\x01", "ab", "b", "ä"}, "a": {"a\x01", "ab", "b", "ä"}, "aa": {"ab", "b", "ä"}, "ab": {"b", "ä"}, "ä": nil} {
			for limit := range 7 {
				list, err := t.store.PendingAccounts(t.Context(), after, limit)
				t.must(err)
				wantSame(t, fmt.Sprintf("PendingAccounts after %q, %d", after, limit), append([]string(nil), list...), append([]string(nil), want[:min(limit, len(want))]...))
			}
		}
		list, err = t.store.PendingAuditEntries(t.Context(), "", 9)
		t.must(err)
		wantSame(t, "pending audit entries of the empty account", len(list), 1)
	})

	run("one holder at a time has the lease", func(t *tester) {
		lease := func(holder string, ttl time.Duration, want bool) {
			t.Helper()
			held, err := t.store.LeaseAudit(t.Context(), holder, ttl)
			t.must(err)
			if held != want {
				t.Errorf("%s has the lease: %v, want %v", holder, held, want)
			}
		}
		lease("a", time.Hour, true)
		lease("b", time.Hour, false)
		lease("b", 0, false)
		lease("a", time.Hour, true)
		lease("a", 0, false)
		lease("b", 30*time.Millisecond, true)
		time.Sleep(60 * time.Millisecond)
		lease("a", time.Hour, true)
		lease("b", time.Hour, false)
	})

	run("audit entries of a target are in the order of its changes", func(t *tester) {
		t.createKeys(newKey("acct", "key"))
		inParallel(8, func(i int) {
			for range 5 {
				_, err := t.store.UpdateKey(t.Context(), "acct", "key", func(key *driver.Key, entry *audit.Entry) error {
					key.Name += "x"
					*entry = newAuditEntry("acct", numbered("n", len(key.Name)))
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
		ids, _ := t.pendingAuditEntries()
		wantSame(t, "audit", len(ids), 40)
		wantSame(t, "IDs are sorted", slices.IsSorted(ids), true)
	})
}

// entriesOfChanges tests that a change and its audit entry are stored together or not at all.
func entriesOfChanges(run runner) {
	failed := errors.New("failed")
	note := func(id string) audit.Entry { return newAuditEntry("acct", id) }

	run("changes of keys", func(t *tester) {
		t.must(t.store.CreateKey(t.Context(), newKey("acct", "key"), driver.CreateOptions{IdempotencyKey: "request", IdempotencyTTL: time.Hour, AuditEntry: note("1")}))
		t.wantAuditEntries("1")
		for _, options := range []driver.CreateOptions{
			{AuditEntry: note("2")}, {MaxCount: 1, AuditEntry: note("2")}, {IdempotencyKey: "request", IdempotencyTTL: time.Hour, AuditEntry: note("2")},
			by("nobody", "one", false),
		} {
			options.AuditEntry = note("2")
			if err := t.store.CreateKey(t.Context(), newKey("acct", "key"), options); err == nil {
				t.Error("CreateKey = nil")
			}
		}
		change := func(id string, change func(*driver.Key), err error) error {
			_, result := t.store.UpdateKey(t.Context(), "acct", id, func(key *driver.Key, entry *audit.Entry) error {
				wantSame(t, "audit entry passed to change", *entry, audit.Entry{})
				*entry = note("3")
				change(key)
				return err
			})
			return result
		}
		t.wantError("UpdateKey", change("key", func(*driver.Key) {}, failed), failed)
		t.wantError("UpdateKey", change("nothing", func(*driver.Key) {}, nil), apierr.ErrNotFound)
		t.createKeys(newKey("acct", "another"))
		t.wantError("UpdateKey", change("key", func(key *driver.Key) { key.Hash = hashOf("acct", "another") }, nil), apierr.ErrExists)
		t.updateKey("key", func(key *driver.Key) { key.Name = "without audit entry" })
		t.wantAuditEntries("1")
		t.must(change("key", func(key *driver.Key) { key.Name = "changed" }, nil))
		t.wantAuditEntries("3", "1")
		t.wantError("DeleteKey", t.store.DeleteKey(t.Context(), "acct", "nothing", nil, note("4")), apierr.ErrNotFound)
		t.wantError("DeleteKey", t.store.DeleteKey(t.Context(), "acct", "key", func(driver.Key) error { return failed }, note("4")), failed)
		t.wantAuditEntries("3", "1")
		t.must(t.store.DeleteKey(t.Context(), "acct", "key", nil, note("4")))
		t.wantAuditEntries("4", "3", "1")
	})

	run("changes of webhooks", func(t *tester) {
		t.must(t.store.CreateWebhook(t.Context(), newWebhook("acct", "webhook"), driver.CreateOptions{AuditEntry: note("1")}))
		t.wantError("CreateWebhook", t.store.CreateWebhook(t.Context(), newWebhook("acct", "webhook"), driver.CreateOptions{AuditEntry: note("2")}), apierr.ErrExists)
		change := func(id string, err error) error {
			_, result := t.store.UpdateWebhook(t.Context(), "acct", id, func(w *driver.Webhook, entry *audit.Entry) error {
				wantSame(t, "audit entry passed to change", *entry, audit.Entry{})
				*entry = note("3")
				return err
			})
			return result
		}
		t.wantError("UpdateWebhook", change("webhook", failed), failed)
		t.wantError("UpdateWebhook", change("nothing", nil), apierr.ErrNotFound)
		t.wantAuditEntries("1")
		t.must(change("webhook", nil))
		t.wantError("DeleteWebhook", t.store.DeleteWebhook(t.Context(), "acct", "nothing", nil, note("4")), apierr.ErrNotFound)
		t.wantError("DeleteWebhook", t.store.DeleteWebhook(t.Context(), "acct", "webhook", func(driver.Webhook) error { return failed }, note("4")), failed)
		t.wantAuditEntries("3", "1")
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "webhook", nil, note("4")))
		t.wantAuditEntries("4", "3", "1")
	})

	run("changes of deliveries and recoveries", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.settleEvent(newEvent("acct", "settled"), 1, driver.Deliver)
		t.wantError("Redeliver", t.store.Redeliver(t.Context(), "acct", "webhook", "nothing", note("1")), apierr.ErrNotFound)
		t.must(t.store.Redeliver(t.Context(), "acct", "webhook", "settled", note("1")))
		t.must(t.store.Redeliver(t.Context(), "acct", "webhook", "settled", note("2")))
		t.wantAuditEntries("2", "1")

		t.must(t.store.CreateRecovery(t.Context(), newRecovery("acct", "webhook", "recovery", driver.Dead), note("4")))
		t.wantError("CreateRecovery", t.store.CreateRecovery(t.Context(), newRecovery("acct", "webhook", "another", driver.Dead), note("5")), driver.ErrRecovering)
		t.wantError("CreateRecovery", t.store.CreateRecovery(t.Context(), newRecovery("acct", "nothing", "another", driver.Dead), note("5")), apierr.ErrNotFound)
		t.wantAuditEntries("4", "2", "1")
	})
}

// durableAuditEntries tests that audit entries survive a restart.
func durableAuditEntries(reopened func(name string, before, after func(*tester))) {
	reopened("audit", func(t *tester) {
		for i := range 4 {
			t.addAuditEntries(newAuditEntry("acct", numbered("n", i)))
		}
		_, numbers := t.pendingAuditEntries()
		t.must(t.store.TakeAuditEntries(t.Context(), numbers[1:3]))
	}, func(t *tester) {
		ids, _ := t.pendingAuditEntries()
		wantSame(t, "pending", ids, []string{"n_000000", "n_000003"})
		t.wantAuditEntries("n_000003", "n_000002", "n_000001", "n_000000")
		t.addAuditEntries(newAuditEntry("acct", "last"))
		ids, _ = t.pendingAuditEntries()
		wantSame(t, "pending", ids, []string{"n_000000", "n_000003", "last"})
	})
}
