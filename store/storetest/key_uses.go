package storetest

import (
	"errors"
	"net/netip"
	"strconv"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/driver"
)

func recordKeyUse(run runner) {
	use := func(id string, after time.Duration) driver.KeyUse {
		return driver.KeyUse{Account: "acct", ID: id, At: some.Add(after)}
	}
	record := func(t *tester, uses ...driver.KeyUse) {
		t.Helper()
		t.must(t.store.RecordKeyUse(t.Context(), uses))
	}
	wantUse := func(t *tester, id string, after time.Duration) {
		t.Helper()
		wantSame(t, "LastUsedAt of "+id, t.key("acct", id).LastUsedAt, some.Add(after))
	}

	run("sets the time unless a later one is recorded", func(t *tester) {
		t.createKeys(newKey("acct", "a"), newKey("acct", "b"), newKey("acct", "c"))
		record(t, use("a", 0), use("b", 5*time.Millisecond))
		wantUse(t, "a", 0)
		wantUse(t, "b", 5*time.Millisecond)
		record(t, use("a", time.Millisecond), use("b", 4*time.Millisecond))
		wantUse(t, "a", time.Millisecond)
		wantUse(t, "b", 5*time.Millisecond)
		record(t, use("a", time.Millisecond), use("b", -time.Hour))
		wantUse(t, "a", time.Millisecond)
		wantUse(t, "b", 5*time.Millisecond)
		wantSame(t, "unused key", t.key("acct", "c"), newKey("acct", "c"))
		record(t)
	})

	run("keeps uses with their hashes", func(t *tester) {
		key := rotatedKey("acct", "key")
		first, second, third := key.Previous, key.Hash, hashOf("third")
		t.createKeys(key)
		by := func(hash driver.Hash, after time.Duration) driver.KeyUse {
			return driver.KeyUse{Account: "acct", ID: "key", Hash: hash, At: some.Add(after)}
		}
		want := func(last, previous time.Duration) {
			t.Helper()
			key := t.key("acct", "key")
			wantSame(t, "LastUsedAt", key.LastUsedAt, some.Add(last))
			wantSame(t, "PreviousUsedAt", key.PreviousUsedAt, some.Add(previous))
			list, err := t.store.ListKeys(t.Context(), "acct", driver.ListQuery{Limit: 1})
			t.must(err)
			wantSame(t, "ListKeys", list, []driver.Key{key})
		}
		record(t, by(second, 5*time.Second), by(first, 3*time.Second))
		want(5*time.Second, 3*time.Second)
		record(t, by(first, 2*time.Second), by(first, 4*time.Second), by(hashOf("never its own"), 6*time.Second), use("key", 7*time.Second))
		want(7*time.Second, 4*time.Second)
		got := t.updateKey("key", func(key *driver.Key) {
			key.Hash, key.Previous, key.PreviousUsedAt = third, second, some.Add(time.Hour)
		})
		wantSame(t, "PreviousUsedAt returned by UpdateKey", got.PreviousUsedAt, some.Add(5*time.Second))
		want(7*time.Second, 5*time.Second)
		record(t, by(first, 8*time.Second), by(second, 4*time.Second))
		want(8*time.Second, 5*time.Second)
		record(t, by(second, 9*time.Second))
		want(9*time.Second, 9*time.Second)
		t.updateKey("key", func(key *driver.Key) { key.Name = "renamed" })
		want(9*time.Second, 9*time.Second)
		t.updateKey("key", func(key *driver.Key) { key.Hash, key.Previous = key.Previous, key.Hash })
		wantSame(t, "PreviousUsedAt of an unused value", t.key("acct", "key").PreviousUsedAt, time.Time{})
		t.updateKey("key", func(key *driver.Key) { key.Hash, key.Previous = key.Previous, key.Hash })
		want(9*time.Second, 9*time.Second)
		t.updateKey("key", func(key *driver.Key) { key.Previous = driver.Hash{} })
		wantSame(t, "PreviousUsedAt without Previous", t.key("acct", "key").PreviousUsedAt, time.Time{})
	})

	run("keeps activity", func(t *tester) {
		key := rotatedKey("acct", "key")
		t.createKeys(key, newKey("acct", "other"))
		from := func(address string) driver.KeyActivity {
			return driver.ActivityFrom(netip.MustParseAddr(address), some)
		}
		scope := driver.ActivityOf(key.Scopes, scopes.Of(scopes.FilesRead), some)
		refusal := driver.ActivityRefused(auth.RefusedRequest{At: some, Outcome: "expired", Route: "GET /"})
		by := func(hash driver.Hash, after time.Duration, activity driver.KeyActivity) driver.KeyUse {
			return driver.KeyUse{Account: "acct", ID: "key", Hash: hash, At: some.Add(after), Activity: activity}
		}
		want := func(activity driver.KeyActivity) {
			t.Helper()
			got := t.key("acct", "key")
			wantSame(t, "Activity", got.Activity, activity)
			list, err := t.store.ListKeys(t.Context(), "acct", driver.ListQuery{Limit: 2})
			t.must(err)
			wantSame(t, "ListKeys", list, []driver.Key{t.key("acct", "other"), got})
		}
		record(t, driver.KeyUse{Account: "acct", ID: "key", Activity: refusal}) // before any use
		want(refusal)
		wantSame(t, "LastUsedAt of an unused key", t.key("acct", "key").LastUsedAt, time.Time{})
		record(t, by(key.Hash, 2*time.Second, from("192.0.2.1")), driver.KeyUse{Account: "acct", ID: "key", Activity: scope}, use("other", 0))
		record(t, by(key.Previous, time.Second, from("2001:db8::1"))) // by another node, earlier
		all := refusal.Add(scope, true).Add(from("192.0.2.1"), true).Add(from("2001:db8::1"), false)
		want(all)
		record(t, by(key.Hash, 2*time.Second, from("192.0.2.1")), driver.KeyUse{Account: "acct", ID: "key", Activity: refusal}) // again
		want(all)
		found, err := t.store.KeyByHash(t.Context(), key.Hash)
		t.must(err)
		wantSame(t, "Activity from KeyByHash", found.Activity, "")
		t.updateKey("key", func(key *driver.Key) { key.Previous, key.Hash, key.Activity = key.Hash, hashOf("next"), refusal })
		want(all)
		record(t, by(hashOf("next"), 3*time.Second, from("2001:db8::1")))
		want(all.Add(from("2001:db8::1"), true))
		t.must(t.store.DeleteKey(t.Context(), "acct", "key", nil, audit.Entry{}))
		record(t, driver.KeyUse{Account: "acct", ID: "key", Activity: refusal})
		key.Activity = all // which CreateKey ignores
		t.createKeys(key)
		want("")
	})

	run("skips keys that do not exist", func(t *tester) {
		t.createKeys(newKey("acct", "a"), newKey("acct", "gone"), newKey("acct", "z"))
		t.must(t.store.DeleteKey(t.Context(), "acct", "gone", nil, audit.Entry{}))
		record(t, use("a", 0), use("gone", 0), use("never", 0), driver.KeyUse{Account: "other", ID: "a", At: some.Add(time.Hour)}, use("z", 0))
		wantUse(t, "a", 0)
		wantUse(t, "z", 0)
		for _, id := range []string{"gone", "never"} {
			_, err := t.store.KeyByID(t.Context(), "acct", id)
			t.wantError("KeyByID", err, apierr.ErrNotFound)
			t.createKeys(newKey("acct", id))
			wantSame(t, "key created later", t.key("acct", id), newKey("acct", id))
		}
	})

	run("changes no field that UpdateKey stores", func(t *tester) {
		key := rotatedKey("acct", "key")
		t.createKeys(key)
		record(t, use("key", 0))
		t.wantKeyAt(key.Hash, key)
		t.wantKeyAt(key.Previous, key)
		key = t.updateKey("key", func(key *driver.Key) { key.Name, key.Hash, key.Hint = "changed", hashOf("changed"), "" })
		record(t, use("key", time.Hour))
		key.LastUsedAt = some.Add(time.Hour)
		wantSame(t, "KeyByID", t.key("acct", "key"), key)
		t.wantNoKeyAt(rotatedKey("acct", "key").Hash)
	})

	run("accepts the same key more than once", func(t *tester) {
		t.createKeys(newKey("acct", "a"), newKey("acct", "b"))
		record(t, use("a", 1*time.Second), use("b", 9*time.Second), use("a", 3*time.Second), use("a", 2*time.Second), use("b", 0))
		wantUse(t, "a", 3*time.Second)
		wantUse(t, "b", 9*time.Second)
	})

	run("concurrent uses and changes are not lost", func(t *tester) {
		const goroutines, each = 6, 20
		key := newKey("acct", "key")
		key.Name = "0"
		t.createKeys(key)
		inParallel(goroutines, func(i int) {
			for j := range each {
				if i%2 == 0 {
					_, err := t.store.UpdateKey(t.Context(), "acct", "key", func(key *driver.Key, _ *audit.Entry) error {
						n, err := strconv.Atoi(key.Name)
						key.Name = strconv.Itoa(n + 1)
						return err
					})
					t.wantError("UpdateKey", err, nil)
				} else {
					t.wantError("RecordKeyUse", t.store.RecordKeyUse(t.Context(), []driver.KeyUse{use("key", time.Duration(j*i)*time.Second)}), nil)
				}
			}
		})
		key.Name = strconv.Itoa(goroutines / 2 * each)
		key.LastUsedAt = some.Add((each - 1) * (goroutines - 1) * time.Second)
		wantSame(t, "KeyByID", t.key("acct", "key"), key)
	})

	run("a use during a deletion does not outlive the key", func(t *tester) {
		for i := range 20 {
			key := rotatedKey("acct", numbered("key", i))
			t.createKeys(key)
			inParallel(2, func(i int) {
				if i == 0 {
					t.wantError("DeleteKey", t.store.DeleteKey(t.Context(), "acct", key.ID, nil, audit.Entry{}), nil)
				} else {
					t.wantError("RecordKeyUse", t.store.RecordKeyUse(t.Context(), []driver.KeyUse{use(key.ID, 0)}), nil)
				}
			})
			t.wantNoKeyAt(key.Hash)
			if _, err := t.store.KeyByID(t.Context(), "acct", key.ID); !errors.Is(err, apierr.ErrNotFound) {
				t.Fatalf("KeyByID of a deleted key = %v", err)
			}
			t.createKeys(key)
			wantSame(t, "recreated key", t.key("acct", key.ID), key)
		}
	})
}
