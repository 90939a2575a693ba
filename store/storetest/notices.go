package storetest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/webhooks"
)

// newNotice returns a pending notice with all fields set.
func newNotice(account, id string) notices.Notice {
	return notices.Notice{
		ID: id, At: some, Account: account, Action: notices.WebhookOff,
		Target: notices.Target{Kind: notices.TargetWebhook, ID: "webhook", Name: "https://example.com", Hint: "hint"}, Turned: "off",
		Actor:   notices.Actor{Kind: notices.ActorPerson, ID: "mia@example.com", Name: "Mia é", Hint: "sak_…abcd"},
		Changed: []string{"name", "active"}, RequestID: "request", ClientAddress: "2001:db8::1",
		Object: "event", Reason: "gone", Since: some.Add(-time.Hour), Until: some.Add(time.Hour), Pending: true,
	}
}

// noticesOf returns all notices of the account, newest first, in pages of query.Limit.
func (t *tester) noticesOf(account string, query notices.Query) (list []notices.Notice) {
	t.Helper()
	if query.Limit == 0 {
		query.Limit = 100
	}
	for {
		page, err := t.store.ListNotices(t.Context(), account, query)
		t.must(err)
		if len(page.Notices) > query.Limit {
			t.Fatalf("page has %d notices, want at most %d", len(page.Notices), query.Limit)
		}
		list = append(list, page.Notices...)
		if query.After = page.Next; page.Next == "" {
			return list
		}
	}
}

func idsOf(list []notices.Notice) (ids []string) {
	for _, n := range list {
		ids = append(ids, n.ID)
	}
	return ids
}

// noticeIDs returns the IDs of the account's notices, newest first.
func (t *tester) noticeIDs(account string, query notices.Query) (ids []string) {
	t.Helper()
	return idsOf(t.noticesOf(account, query))
}

func (t *tester) wantNotices(want ...string) {
	t.Helper()
	wantSame(t, "notices", t.noticeIDs("acct", notices.Query{}), want)
}

// addNotices stores new notices.
func (t *tester) addNotices(list ...notices.Notice) {
	t.Helper()
	added, err := t.store.AddNotices(t.Context(), list)
	t.must(err)
	if added != len(list) {
		t.Fatalf("AddNotices stored %d notices, want %d", added, len(list))
	}
}

// allPending returns the pending notices of all accounts, by number.
func (t *tester) allPending() (list []notices.Numbered) {
	t.Helper()
	accounts, err := t.store.PendingAccounts(t.Context(), "", 1000)
	t.must(err)
	for _, account := range append(accounts, "") {
		of, err := t.store.PendingNotices(t.Context(), account, 1000)
		t.must(err)
		list = append(list, of...)
	}
	slices.SortFunc(list, func(a, b notices.Numbered) int { return cmp.Compare(a.Number, b.Number) })
	return list
}

// pendingNotices returns the IDs and numbers of pending notices.
func (t *tester) pendingNotices() (ids []string, numbers []uint64) {
	t.Helper()
	for _, n := range t.allPending() {
		ids, numbers = append(ids, n.Notice.ID), append(numbers, n.Number)
	}
	return ids, numbers
}

// addingNotices tests AddNotices.
func addingNotices(run runner) {
	run("returns notices unchanged", func(t *tester) {
		full, bare := newNotice("acct", "b"), notices.Notice{ID: "a", Account: "acct", At: some, Action: notices.KeyDeleted}
		odd := newNotice("", "c")
		odd.Actor.ID, odd.Target.ID, odd.Changed = oddStrings[0], long("target", 128), oddStrings
		t.addNotices(full, bare, odd)
		wantSame(t, "ListNotices", t.noticesOf("acct", notices.Query{}), []notices.Notice{bare, full})
		wantSame(t, "ListNotices of the empty account", t.noticesOf("", notices.Query{}), []notices.Notice{odd})
		list := t.allPending()
		if len(list) != 2 || list[0].Number < 1 {
			t.Fatalf("PendingNotices = %v, want two with numbers", list)
		}
		wantSame(t, "pending", []notices.Notice{list[0].Notice, list[1].Notice}, []notices.Notice{full, odd})
	})

	run("skips known notices and adds the others of the call", func(t *tester) {
		t.addNotices(newNotice("acct", "a"))
		other := newNotice("acct", "a")
		other.Action = notices.KeyDeleted
		added, err := t.store.AddNotices(t.Context(), []notices.Notice{other, newNotice("acct", "b"), newNotice("other", "a")})
		t.must(err)
		wantSame(t, "added", added, 2)
		wantSame(t, "ListNotices", t.noticesOf("acct", notices.Query{}), []notices.Notice{newNotice("acct", "b"), newNotice("acct", "a")})
	})

	run("stores an expiry notice only if the key expires at that time", func(t *tester) {
		key := newKey("acct", "key")
		key.ExpiresAt = some.Add(time.Hour)
		t.createKeys(key)
		other := newKey("other", "elsewhere")
		other.ExpiresAt = key.ExpiresAt
		t.createKeys(other)
		add := func(id, target string, until time.Time, want int) {
			t.Helper()
			n := newNotice("acct", id)
			n.Action, n.Target, n.Until = notices.KeyExpiring, notices.Target{Kind: notices.TargetKey, ID: target}, until
			added, err := t.store.AddNotices(t.Context(), []notices.Notice{n})
			t.must(err)
			wantSame(t, "added", added, want)
		}
		add("a", "key", key.ExpiresAt, 1)
		add("b", "key", key.ExpiresAt.Add(time.Hour), 0)
		add("c", "never", key.ExpiresAt, 0)
		add("d", "elsewhere", key.ExpiresAt, 0)
		_, err := t.store.UpdateKey(t.Context(), "acct", "key", func(k *apikeys.Key, _ *notices.Notice) error {
			k.ExpiresAt = k.ExpiresAt.Add(time.Hour)
			return nil
		})
		t.must(err)
		add("e", "key", key.ExpiresAt, 0)
		add("f", "key", key.ExpiresAt.Add(time.Hour), 1)
		t.must(t.store.DeleteKey(t.Context(), "acct", "key", nil, notices.Notice{}))
		add("g", "key", key.ExpiresAt.Add(time.Hour), 0)
		t.wantNotices("f", "a")
	})

	run("stores notices with the same ID once, also concurrently", func(t *tester) {
		counts := make([]int, 8)
		inParallel(len(counts), func(i int) {
			var err error
			if counts[i], err = t.store.AddNotices(t.Context(), []notices.Notice{newNotice("acct", "a")}); err != nil {
				t.Error(err)
			}
		})
		slices.Sort(counts)
		wantSame(t, "added", counts, []int{0, 0, 0, 0, 0, 0, 0, 1})
		ids, _ := t.pendingNotices()
		wantSame(t, "pending", ids, []string{"a"})
	})

	run("purges notices by their time of storing, also pending ones", func(t *tester) {
		for i := range 5 {
			t.addNotices(newNotice("acct", numbered("n", i)))
		}
		now, err := t.store.Now(t.Context())
		t.must(err)
		t.purge(webhooks.Purge{Notices: now.Add(-time.Hour), Limit: 99})
		t.purge(webhooks.Purge{Limit: 99})
		_, old := t.pendingNotices()
		if len(old) != 5 || len(t.noticesOf("acct", notices.Query{})) != 5 {
			t.Errorf("%d notices pending, want 5", len(old))
		}
		t.purge(webhooks.Purge{Notices: now.Add(time.Hour), Limit: 2})
		ids, _ := t.pendingNotices()
		wantSame(t, "pending", ids, nil)
		t.wantNotices()
		t.addNotices(newNotice("acct", "later"))
		t.must(t.store.TakeNotices(t.Context(), old)) // the notices may be purged already
		ids, _ = t.pendingNotices()
		wantSame(t, "pending", ids, []string{"later"})
	})
}

func listingNotices(run runner) {
	run("lists the notices selected by a query, newest first, in pages", func(t *tester) {
		var all []notices.Notice
		for i := range 12 {
			n := newNotice("acct", numbered("n", i))
			n.At = some.Add(time.Duration(i) * time.Minute)
			n.Target = []notices.Target{{Kind: notices.TargetKey, ID: "a"}, {Kind: notices.TargetKey, ID: "b"}, {Kind: notices.TargetWebhook, ID: "a"}}[i%3]
			n.Action = []notices.Action{notices.KeyCreated, notices.KeyDeleted}[i%2]
			all = append(all, n)
			t.addNotices(n, newNotice("other", numbered("n", i)))
		}
		for _, query := range []notices.Query{
			{}, {Target: notices.Target{Kind: notices.TargetKey}}, {Target: notices.Target{Kind: notices.TargetKey, ID: "a"}},
			{Target: notices.Target{Kind: notices.TargetWebhook, ID: "b"}}, {Actions: []notices.Action{notices.KeyDeleted}},
			{Actions: []notices.Action{notices.KeyDeleted, notices.KeyCreated}}, {Since: some.Add(3 * time.Minute)}, {Until: some.Add(3 * time.Minute)},
			{Since: some.Add(time.Minute), Until: some.Add(9 * time.Minute), Actions: []notices.Action{notices.KeyCreated}, Target: notices.Target{Kind: notices.TargetKey}},
		} {
			var want []string
			for _, n := range slices.Backward(all) {
				if query.Matches(&n) {
					want = append(want, n.ID)
				}
			}
			for _, query.Limit = range []int{1, 2, 5, 99} {
				wantSame(t, "ListNotices", t.noticeIDs("acct", query), want)
			}
		}
		wantSame(t, "ListNotices", t.noticeIDs("nothing", notices.Query{}), nil)
	})

	run("lists in the order of commits, not by the clocks of nodes", func(t *tester) {
		key, webhook := notices.Target{Kind: notices.TargetKey, ID: "a"}, notices.Target{Kind: notices.TargetWebhook, ID: "a"}
		for i, id := range []string{"m", "z", "a", "n", "b", "y"} {
			n := newNotice("acct", id)
			n.Target = []notices.Target{key, webhook}[i%2]
			n.Target.Name, n.Target.Hint = numbered("name", i), numbered("hint", i) // not part of the identity
			t.addNotices(n)
		}
		for _, limit := range []int{1, 2, 9} {
			wantSame(t, "notices of the account", t.noticeIDs("acct", notices.Query{Limit: limit}), []string{"y", "b", "n", "a", "z", "m"})
			wantSame(t, "notices of the target", t.noticeIDs("acct", notices.Query{Target: key, Limit: limit}), []string{"b", "a", "m"})
		}
	})

	run("pages continue after a purge, and reveal nothing about other accounts", func(t *tester) {
		for i := range 6 {
			t.addNotices(newNotice("acct", numbered("n", i)), newNotice("other", numbered("o", i)))
		}
		page, err := t.store.ListNotices(t.Context(), "acct", notices.Query{Limit: 2})
		t.must(err)
		t.addNotices(newNotice("acct", "later"))
		target := newNotice("acct", "").Target
		for _, query := range []notices.Query{{After: page.Next, Limit: 2}, {After: page.Next, Limit: 2, Target: target}} {
			next, err := t.store.ListNotices(t.Context(), "acct", query)
			t.must(err)
			wantSame(t, "next page", idsOf(next.Notices), []string{"n_000003", "n_000002"})
		}
		other, err := t.store.ListNotices(t.Context(), "other", notices.Query{After: page.Next, Limit: 99})
		t.must(err)
		for _, n := range other.Notices {
			wantSame(t, "account", n.Account, "other")
		}
		now, err := t.store.Now(t.Context())
		t.must(err)
		t.purge(webhooks.Purge{Notices: now.Add(time.Hour), Limit: 99})
		next, err := t.store.ListNotices(t.Context(), "acct", notices.Query{After: page.Next, Limit: 2})
		t.must(err)
		wantSame(t, "next page", len(next.Notices), 0)
		t.addNotices(newNotice("acct", "again"))
		t.wantNotices("again")
	})

	run("a query for a target examines no other notices", func(t *tester) {
		first := newNotice("acct", "first")
		first.Target.ID = "rare"
		t.addNotices(first)
		var list []notices.Notice
		for i := range 11_000 {
			list = append(list, newNotice("acct", numbered("n", i)))
		}
		for chunk := range slices.Chunk(list, 1000) {
			t.addNotices(chunk...)
		}
		page, err := t.store.ListNotices(t.Context(), "acct", notices.Query{Target: first.Target, Limit: 9})
		t.must(err)
		wantSame(t, "page", idsOf(page.Notices), []string{"first"})
		wantSame(t, "Next", page.Next, "")
	})
}

func takingNotices(run runner) {
	run("PendingNotices returns an account's notices in the order of commits, until they are taken", func(t *tester) {
		for i := range 6 {
			n := newNotice(numbered("acct", i%2), numbered("n", 9-i))
			n.Pending = i != 3
			t.addNotices(n)
		}
		ids, numbers := t.pendingNotices()
		wantSame(t, "pending", ids, []string{"n_000009", "n_000008", "n_000007", "n_000005", "n_000004"})
		of := func(account string, limit int) (ids []string) {
			t.Helper()
			list, err := t.store.PendingNotices(t.Context(), account, limit)
			t.must(err)
			for _, n := range list {
				ids = append(ids, n.Notice.ID)
			}
			return ids
		}
		wantSame(t, "pending notices of the first account", of("acct_000000", 9), []string{"n_000009", "n_000007", "n_000005"})
		wantSame(t, "first two pending notices", of("acct_000000", 2), []string{"n_000009", "n_000007"})
		wantSame(t, "pending notices of the second account", of("acct_000001", 9), []string{"n_000008", "n_000004"})
		wantSame(t, "pending notices of another account", of("acct_00000", 9), nil)
		wantSame(t, "pending notices of the empty account", of("", 9), nil)

		t.must(t.store.TakeNotices(t.Context(), []uint64{numbers[1], numbers[3], numbers[4] + 1000}))
		ids, _ = t.pendingNotices()
		wantSame(t, "pending", ids, []string{"n_000009", "n_000007", "n_000004"})
		t.must(t.store.TakeNotices(t.Context(), []uint64{numbers[1]}))
		for _, n := range t.noticesOf("acct_000000", notices.Query{}) {
			if want := n.ID != "n_000005"; n.Pending != want {
				t.Errorf("%s: Pending = %v, want %v", n.ID, n.Pending, want)
			}
		}
	})

	run("PendingAccounts lists accounts with pending notices, in order", func(t *tester) {
		for i, account := range []string{"b", "", "a\x01", "ab", "a", "taken", "ä", "b"} {
			t.addNotices(newNotice(account, numbered("n", i)))
		}
		old := newNotice("never", "n")
		old.Pending = false
		t.addNotices(old)
		list, err := t.store.PendingNotices(t.Context(), "taken", 9)
		t.must(err)
		t.must(t.store.TakeNotices(t.Context(), []uint64{list[0].Number}))
		for after, want := range map[string][]string{"": {"a", "a\x01", "ab", "b", "ä"}, "a": {"a\x01", "ab", "b", "ä"}, "aa": {"ab", "b", "ä"}, "ab": {"b", "ä"}, "ä": nil} {
			for limit := range 7 {
				list, err := t.store.PendingAccounts(t.Context(), after, limit)
				t.must(err)
				wantSame(t, fmt.Sprintf("PendingAccounts after %q, %d", after, limit), append([]string(nil), list...), append([]string(nil), want[:min(limit, len(want))]...))
			}
		}
		list, err = t.store.PendingNotices(t.Context(), "", 9)
		t.must(err)
		wantSame(t, "pending notices of the empty account", len(list), 1)
	})

	run("one holder at a time has the lease", func(t *tester) {
		lease := func(holder string, ttl time.Duration, want bool) {
			t.Helper()
			held, err := t.store.LeaseNotices(t.Context(), holder, ttl)
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

	run("notices of a target are in the order of its changes", func(t *tester) {
		t.createKeys(newKey("acct", "key"))
		inParallel(8, func(i int) {
			for range 5 {
				_, err := t.store.UpdateKey(t.Context(), "acct", "key", func(key *apikeys.Key, notice *notices.Notice) error {
					key.Name += "x"
					*notice = newNotice("acct", numbered("n", len(key.Name)))
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
		ids, _ := t.pendingNotices()
		wantSame(t, "notices", len(ids), 40)
		wantSame(t, "IDs are sorted", slices.IsSorted(ids), true)
	})
}

// noticesOfChanges tests that every change has its notice and every notice its change.
func noticesOfChanges(run runner) {
	failed := errors.New("failed")
	note := func(id string) notices.Notice { return newNotice("acct", id) }

	run("changes of keys", func(t *tester) {
		t.must(t.store.CreateKey(t.Context(), newKey("acct", "key"), apikeys.CreateOptions{IdempotencyKey: "request", IdempotencyTTL: time.Hour, Notice: note("1")}))
		t.wantNotices("1")
		for _, options := range []apikeys.CreateOptions{
			{Notice: note("2")}, {MaxCount: 1, Notice: note("2")}, {IdempotencyKey: "request", IdempotencyTTL: time.Hour, Notice: note("2")},
			by("nobody", "one", false),
		} {
			options.Notice = note("2")
			if err := t.store.CreateKey(t.Context(), newKey("acct", "key"), options); err == nil {
				t.Error("CreateKey = nil")
			}
		}
		change := func(id string, change func(*apikeys.Key), err error) error {
			_, result := t.store.UpdateKey(t.Context(), "acct", id, func(key *apikeys.Key, notice *notices.Notice) error {
				wantSame(t, "notice passed to change", *notice, notices.Notice{})
				*notice = note("3")
				change(key)
				return err
			})
			return result
		}
		t.wantError("UpdateKey", change("key", func(*apikeys.Key) {}, failed), failed)
		t.wantError("UpdateKey", change("nothing", func(*apikeys.Key) {}, nil), apikeys.ErrNotFound)
		t.createKeys(newKey("acct", "another"))
		t.wantError("UpdateKey", change("key", func(key *apikeys.Key) { key.Hash = hashOf("acct", "another") }, nil), apikeys.ErrExists)
		t.updateKey("key", func(key *apikeys.Key) { key.Name = "without notice" })
		t.wantNotices("1")
		t.must(change("key", func(key *apikeys.Key) { key.Name = "changed" }, nil))
		t.wantNotices("3", "1")
		t.wantError("DeleteKey", t.store.DeleteKey(t.Context(), "acct", "nothing", nil, note("4")), apikeys.ErrNotFound)
		t.wantError("DeleteKey", t.store.DeleteKey(t.Context(), "acct", "key", func(apikeys.Key) error { return failed }, note("4")), failed)
		t.wantNotices("3", "1")
		t.must(t.store.DeleteKey(t.Context(), "acct", "key", nil, note("4")))
		t.wantNotices("4", "3", "1")
	})

	run("changes of webhooks", func(t *tester) {
		t.must(t.store.CreateWebhook(t.Context(), newWebhook("acct", "webhook"), webhooks.CreateOptions{Notice: note("1")}))
		t.wantError("CreateWebhook", t.store.CreateWebhook(t.Context(), newWebhook("acct", "webhook"), webhooks.CreateOptions{Notice: note("2")}), webhooks.ErrExists)
		change := func(id string, err error) error {
			_, result := t.store.UpdateWebhook(t.Context(), "acct", id, func(w *webhooks.Webhook, notice *notices.Notice) error {
				wantSame(t, "notice passed to change", *notice, notices.Notice{})
				*notice = note("3")
				return err
			})
			return result
		}
		t.wantError("UpdateWebhook", change("webhook", failed), failed)
		t.wantError("UpdateWebhook", change("nothing", nil), webhooks.ErrNotFound)
		t.wantNotices("1")
		t.must(change("webhook", nil))
		t.wantError("DeleteWebhook", t.store.DeleteWebhook(t.Context(), "acct", "nothing", nil, note("4")), webhooks.ErrNotFound)
		t.wantError("DeleteWebhook", t.store.DeleteWebhook(t.Context(), "acct", "webhook", func(webhooks.Webhook) error { return failed }, note("4")), failed)
		t.wantNotices("3", "1")
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "webhook", nil, note("4")))
		t.wantNotices("4", "3", "1")
	})

	run("changes of deliveries and recoveries", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.settleEvent(newEvent("acct", "settled"), 1, webhooks.Deliver)
		t.wantError("Redeliver", t.store.Redeliver(t.Context(), "acct", "webhook", "nothing", note("1")), webhooks.ErrNotFound)
		t.must(t.store.Redeliver(t.Context(), "acct", "webhook", "settled", note("1")))
		t.must(t.store.Redeliver(t.Context(), "acct", "webhook", "settled", note("2")))
		t.wantNotices("2", "1")

		t.must(t.store.CreateRecovery(t.Context(), newRecovery("acct", "webhook", "recovery", webhooks.Dead), note("4")))
		t.wantError("CreateRecovery", t.store.CreateRecovery(t.Context(), newRecovery("acct", "webhook", "another", webhooks.Dead), note("5")), webhooks.ErrRecovering)
		t.wantError("CreateRecovery", t.store.CreateRecovery(t.Context(), newRecovery("acct", "nothing", "another", webhooks.Dead), note("5")), webhooks.ErrNotFound)
		t.wantNotices("4", "2", "1")
	})
}

// durableNotices tests that notices survive a restart.
func durableNotices(reopened func(name string, before, after func(*tester))) {
	reopened("notices", func(t *tester) {
		for i := range 4 {
			t.addNotices(newNotice("acct", numbered("n", i)))
		}
		_, numbers := t.pendingNotices()
		t.must(t.store.TakeNotices(t.Context(), numbers[1:3]))
	}, func(t *tester) {
		ids, _ := t.pendingNotices()
		wantSame(t, "pending", ids, []string{"n_000000", "n_000003"})
		t.wantNotices("n_000003", "n_000002", "n_000001", "n_000000")
		t.addNotices(newNotice("acct", "last"))
		ids, _ = t.pendingNotices()
		wantSame(t, "pending", ids, []string{"n_000000", "n_000003", "last"})
	})
}
