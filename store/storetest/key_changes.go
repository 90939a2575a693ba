package storetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/driver"
)

var errChange = errors.New("error of change")

func updateKey(run runner) {
	run("passes a copy to change, stores the result and returns it", func(t *tester) {
		key := rotatedKey("acct", "key")
		t.createKeys(key, newKey("acct", "other"))
		var given driver.Key
		var kept *driver.Key
		want := key
		want.Name, want.Scopes = "another", scopes.Of(scopes.SecretsWrite)
		want.Hash, want.Previous = hashOf("new"), key.Hash
		want.Hint, want.PreviousHint = "new_…A1b2", key.Hint
		want.ExpiresAt, want.PreviousExpiresAt = time.Time{}, some.Add(time.Millisecond)
		got := t.updateKey("key", func(key *driver.Key) {
			given, kept = *key, key
			*key = want
			key.PreviousExpiresAt = want.PreviousExpiresAt.In(time.FixedZone("", 3600))
		})
		wantSame(t, "key passed to change", given, key)
		wantSame(t, "UpdateKey", got, want)
		kept.Name = "too late"
		wantSame(t, "KeyByID", t.key("acct", "key"), want)
		t.wantKeyAt(want.Hash, want)
		t.wantKeyAt(want.Previous, want)
		wantSame(t, "other key", t.key("acct", "other"), newKey("acct", "other"))
	})

	run("returns ErrNotFound if the key does not exist", func(t *tester) {
		_, err := t.store.UpdateKey(t.Context(), "acct", "key", rename)
		t.wantError("UpdateKey", err, apierr.ErrNotFound)
	})

	run("returns ErrExists if another key has one of the new hashes", func(t *tester) {
		owner, key := rotatedKey("other", "owner"), rotatedKey("acct", "key")
		t.createKeys(owner, key)
		for _, inUse := range []driver.Hash{owner.Hash, owner.Previous} {
			for _, change := range []func(*driver.Key){
				func(key *driver.Key) { key.Hash, key.Previous = inUse, hashOf("free") },
				func(key *driver.Key) { key.Hash, key.Previous = hashOf("free"), inUse },
			} {
				_, err := t.store.UpdateKey(t.Context(), "acct", "key", func(key *driver.Key, _ *audit.Entry) error {
					change(key)
					return nil
				})
				t.wantError("UpdateKey", err, apierr.ErrExists)
				t.wantKeyAt(key.Hash, key)
				t.wantKeyAt(key.Previous, key)
				t.wantKeyAt(inUse, owner)
				t.wantNoKeyAt(hashOf("free"))
			}
		}
	})

	run("a key may keep, swap and lose its hashes", func(t *tester) {
		key := rotatedKey("acct", "key")
		t.createKeys(key)
		t.updateKey("key", func(*driver.Key) {})
		t.wantKeyAt(key.Hash, key)
		t.wantKeyAt(key.Previous, key)
		key = t.updateKey("key", func(key *driver.Key) {
			key.Hash, key.Hint, key.Previous, key.PreviousHint = key.Previous, key.PreviousHint, key.Hash, key.Hint
		})
		t.wantKeyAt(key.Hash, key)
		t.wantKeyAt(key.Previous, key)
		lost := key.Previous
		key = t.updateKey("key", func(key *driver.Key) { key.Previous = driver.Hash{} })
		t.wantKeyAt(key.Hash, key)
		t.wantNoKeyAt(lost)
	})

	run("stores nothing if change returns an error", func(t *tester) {
		key := rotatedKey("acct", "key")
		t.createKeys(key)
		_, err := t.store.UpdateKey(t.Context(), "acct", "key", func(key *driver.Key, _ *audit.Entry) error {
			key.Name, key.Hash = "changed", hashOf("changed")
			return fmt.Errorf("wrapped: %w", errChange)
		})
		t.wantError("UpdateKey", err, errChange)
		wantSame(t, "KeyByID", t.key("acct", "key"), key)
		t.wantKeyAt(key.Hash, key)
		t.wantNoKeyAt(hashOf("changed"))
	})

	run("former hashes of the key are no longer found", func(t *tester) {
		key := rotatedKey("acct", "key")
		t.createKeys(key)
		t.updateKey("key", func(key *driver.Key) { key.Hash, key.Previous = hashOf("new"), key.Hash })
		t.wantNoKeyAt(key.Previous)
		t.updateKey("key", func(key *driver.Key) { key.Hash, key.Previous = hashOf("newer"), hashOf("new") })
		t.wantNoKeyAt(key.Hash)
		freed := newKey("other", "key")
		freed.Hash, freed.Previous = key.Hash, key.Previous
		t.createKeys(freed)
		t.wantKeyAt(key.Hash, freed)
	})

	run("does not change ID, Account, CreatedAt and LastUsedAt", func(t *tester) {
		key := newKey("acct", "key")
		t.createKeys(key)
		t.must(t.store.RecordKeyUse(t.Context(), []driver.KeyUse{{Account: "acct", ID: "key", At: some}}))
		got := t.updateKey("key", func(key *driver.Key) {
			key.ID, key.Account, key.Name = "id", "other", "renamed"
			key.CreatedAt, key.LastUsedAt = some.Add(time.Hour), some.Add(time.Hour)
		})
		key.Name, key.LastUsedAt = "renamed", some
		wantSame(t, "UpdateKey", got, key)
		wantSame(t, "KeyByID", t.key("acct", "key"), key)
		_, err := t.store.KeyByID(t.Context(), "other", "id")
		t.wantError("KeyByID", err, apierr.ErrNotFound)
	})

	keyRecords.updates(run)

	run("if several keys take the same hash concurrently, one succeeds", func(t *tester) {
		const goroutines = 8
		for i := range goroutines {
			t.createKeys(newKey("acct", numbered("key", i)))
		}
		won := make([]bool, goroutines)
		inParallel(goroutines, func(i int) {
			_, err := t.store.UpdateKey(t.Context(), "acct", numbered("key", i), func(key *driver.Key, _ *audit.Entry) error {
				key.Hash, key.Hint = hashOf("wanted"), "won_…A1b2"
				return nil
			})
			if won[i] = err == nil; !won[i] {
				t.wantError("UpdateKey", err, apierr.ErrExists)
			}
		})
		var winners []driver.Key
		for i := range goroutines {
			key := newKey("acct", numbered("key", i))
			if won[i] {
				key.Hash, key.Hint = hashOf("wanted"), "won_…A1b2"
				winners = append(winners, key)
			}
			t.wantKeyAt(key.Hash, key)
		}
		if len(winners) != 1 {
			t.Errorf("%d keys have the same hash, want 1", len(winners))
		}
	})
}

func deleteKey(run runner) {
	run("removes a key with its hashes", func(t *tester) {
		key, other := rotatedKey("acct", "key"), rotatedKey("acct", "other")
		t.createKeys(key, other)
		t.must(t.store.DeleteKey(t.Context(), "acct", "key", nil, audit.Entry{}))
		t.wantNoKeyAt(key.Hash)
		t.wantNoKeyAt(key.Previous)
		_, err := t.store.KeyByID(t.Context(), "acct", "key")
		t.wantError("KeyByID", err, apierr.ErrNotFound)
		list, err := t.store.ListKeys(t.Context(), "acct", driver.ListQuery{Limit: 9})
		t.must(err)
		wantSame(t, "ListKeys", list, []driver.Key{other})
		t.wantKeyAt(other.Previous, other)
	})

	run("removes nothing if check returns an error", func(t *tester) {
		key := rotatedKey("acct", "key")
		t.createKeys(key)
		t.must(t.store.RecordKeyUse(t.Context(), []driver.KeyUse{{Account: "acct", ID: "key", Hash: key.Hash, At: some}}))
		var given driver.Key
		refuse := func(key driver.Key) error {
			given = key
			return fmt.Errorf("wrapped: %w", errChange)
		}
		t.wantError("DeleteKey", t.store.DeleteKey(t.Context(), "acct", "key", refuse, audit.Entry{}), errChange)
		t.wantKeyAt(key.Hash, key)
		t.wantKeyAt(key.Previous, key)
		key.LastUsedAt = some
		wantSame(t, "KeyByID", t.key("acct", "key"), key)
		wantSame(t, "key passed to check", given, key)
		t.must(t.store.DeleteKey(t.Context(), "acct", "key", func(driver.Key) error { return nil }, audit.Entry{}))
		t.wantNoKeyAt(key.Hash)
		t.wantError("DeleteKey", t.store.DeleteKey(t.Context(), "acct", "key", func(driver.Key) error {
			t.Error("check called although the key does not exist")
			return nil
		}, audit.Entry{}), apierr.ErrNotFound)
	})

	run("no change happens between check and removal", func(t *tester) {
		for i := range 20 {
			key := newKey("acct", numbered("key", i))
			key.Name = "before"
			t.createKeys(key)
			var changed, deleted error
			inParallel(2, func(i int) {
				if i == 0 {
					_, changed = t.store.UpdateKey(t.Context(), "acct", key.ID, rename)
					return
				}
				deleted = t.store.DeleteKey(t.Context(), "acct", key.ID, func(now driver.Key) error {
					time.Sleep(time.Microsecond) // gives the other goroutine time to run
					if now.Name != key.Name {
						return errChange
					}
					return nil
				}, audit.Entry{})
			})
			if (deleted == nil) == (changed == nil) {
				t.Errorf("UpdateKey = %v, and DeleteKey with a check that it has not happened = %v", changed, deleted)
			}
		}
	})

	run("removes the key's uses", func(t *tester) {
		key := newKey("acct", "key")
		t.createKeys(key)
		t.must(t.store.RecordKeyUse(t.Context(), []driver.KeyUse{{Account: "acct", ID: "key", At: some}}))
		t.must(t.store.DeleteKey(t.Context(), "acct", "key", nil, audit.Entry{}))
		t.createKeys(key)
		wantSame(t, "KeyByID", t.key("acct", "key"), key)
	})

	run("ErrNotFound", func(t *tester) {
		t.createKeys(newKey("acct", "key"))
		t.wantError("DeleteKey", t.store.DeleteKey(t.Context(), "acct", "other", nil, audit.Entry{}), apierr.ErrNotFound)
		t.must(t.store.DeleteKey(t.Context(), "acct", "key", nil, audit.Entry{}))
		t.wantError("DeleteKey", t.store.DeleteKey(t.Context(), "acct", "key", nil, audit.Entry{}), apierr.ErrNotFound)
	})

	run("if several calls delete a key concurrently, one succeeds", func(t *tester) {
		for i := range 10 {
			key := newKey("acct", numbered("key", i))
			t.createKeys(key)
			deleted := make([]bool, 4)
			inParallel(len(deleted), func(i int) {
				err := t.store.DeleteKey(t.Context(), key.Account, key.ID, nil, audit.Entry{})
				if deleted[i] = err == nil; !deleted[i] {
					t.wantError("DeleteKey", err, apierr.ErrNotFound)
				}
			})
			if n := countTrue(deleted); n != 1 {
				t.Errorf("DeleteKey of the same key succeeded %d times", n)
			}
		}
	})
}

func countTrue(list []bool) (n int) {
	for _, b := range list {
		if b {
			n++
		}
	}
	return n
}
