package storetest

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/driver"
)

// keyValues tests the general rules of driver.KeyStore.
func keyValues(run runner) {
	run("returns every field unchanged", func(t *tester) {
		key := rotatedKey("acct", "key")
		t.createKeys(key)
		wantSame(t, "KeyByID", t.key("acct", "key"), key)
		t.wantKeyAt(key.Hash, key)
	})

	run("keeps the order of scopes", func(t *tester) {
		all := slices.Collect(scopes.Specified().All())
		for i := range all {
			key := newKey("acct", numbered("key", i))
			key.Scopes = scopes.Of(append(slices.Clone(all[i:]), all[:i]...)...)
			t.createKeys(key)
			wantSame(t, "KeyByID", t.key("acct", key.ID), key)
		}
		none := newKey("acct", "no scopes")
		none.Scopes = scopes.Set{}
		t.createKeys(none)
		wantSame(t, "KeyByID", t.key("acct", none.ID), none)
	})

	run("returns a host's own scopes by name, in order", func(t *tester) {
		var members []scopes.Scope
		for i := range 51 {
			members = append(members, scopes.Scope(fmt.Sprintf("teams%d:read", i)))
		}
		members = slices.Insert(members, 20, slices.Collect(scopes.Specified().All())...)
		for i, set := range []scopes.Set{scopes.Of(members...), scopes.Of(members[:1]...), scopes.Of("zebras:read", scopes.FilesRead, "apes:read")} {
			key := rotatedKey("acct", numbered("key", i))
			key.Hash, key.Previous = hashOf("own", key.ID), hashOf("own", key.ID, "previous")
			key.Scopes = set
			t.createKeys(key)
			wantSame(t, "KeyByID", t.key("acct", key.ID), key)
			t.wantKeyAt(key.Hash, key)
			t.wantKeyAt(key.Previous, key)
			key.Name = "another"
			wantSame(t, "UpdateKey", t.updateKey(key.ID, func(key *driver.Key) { key.Name = "another" }), key)
		}
	})

	run("returns times in milliseconds and UTC", func(t *tester) {
		zone := time.FixedZone("", -3*3600)
		key := rotatedKey("acct", "key")
		local := key
		local.CreatedAt = key.CreatedAt.In(zone)
		local.ExpiresAt = key.ExpiresAt.In(zone)
		local.PreviousExpiresAt = key.PreviousExpiresAt.In(zone)
		t.createKeys(local)
		used := key.CreatedAt.Add(time.Millisecond)
		t.must(t.store.RecordKeyUse(t.Context(), []driver.KeyUse{{Account: "acct", ID: "key", At: used.In(zone)}}))
		t.wantKeyAt(key.Hash, key)
		key.LastUsedAt = used
		wantSame(t, "KeyByID", t.key("acct", "key"), key)
	})

	run("accepts times far from now", func(t *tester) {
		key := newKey("acct", "key")
		key.CreatedAt = time.Date(1, 2, 3, 4, 5, 6, int(789*time.Millisecond), time.UTC)
		key.ExpiresAt = time.Date(9999, 12, 31, 23, 59, 59, int(999*time.Millisecond), time.UTC)
		t.createKeys(key)
		wantSame(t, "KeyByID", t.key("acct", "key"), key)
	})

	run("accepts any strings", func(t *tester) {
		list := []string{long("a", 128), long("b", 128), strings.Repeat("é", 64)}
		list = append(list, oddStrings...)
		for i, s := range list {
			key := newKey(s, s)
			key.Name = list[len(list)-1-i]
			t.createKeys(key)
			wantSame(t, "KeyByID", t.key(s, s), key)
			t.wantKeyAt(key.Hash, key)
		}
		for i, name := range []string{"", long("c", 4096)} {
			key := newKey("acct", fmt.Sprint("key ", i))
			key.Name = name
			t.createKeys(key)
			wantSame(t, "KeyByID", t.key("acct", key.ID), key)
		}
	})

	run("accepts any hash except zero", func(t *tester) {
		low, high := newKey("acct", "low"), newKey("acct", "high")
		low.Hash = driver.Hash{}
		low.Hash.Sum[31] = 1
		for i := range high.Hash.Sum {
			high.Hash.Sum[i] = 255
		}
		t.createKeys(low, high)
		t.wantKeyAt(low.Hash, low)
		t.wantKeyAt(high.Hash, high)
	})

	run("a zero Previous means none and is never found", func(t *tester) {
		a, b := newKey("acct", "a"), newKey("acct", "b") // neither has a previous hash
		t.createKeys(a, b)
		t.wantNoKeyAt(driver.Hash{})
		t.updateKey("a", func(key *driver.Key) { key.Name = "still without" })
		t.wantNoKeyAt(driver.Hash{})
		t.must(t.store.DeleteKey(t.Context(), "acct", "a", nil, audit.Entry{}))
		t.wantKeyAt(b.Hash, b)
		t.wantNoKeyAt(driver.Hash{})
	})

	run("an ID belongs to one account", func(t *tester) {
		key := newKey("acct", "key")
		t.createKeys(key, newKey("other", "other key"), newKey("other", "acct"))
		for _, ref := range [][2]string{{"other", "key"}, {"acct", "other key"}, {"nobody", "key"}, {"acctkey", ""}, {"", "key"}, {"ACCT", "key"}, {"acct", "KEY"}, {"acct", "ke"}, {"acc", "tkey"}} {
			account, id := ref[0], ref[1]
			_, err := t.store.KeyByID(t.Context(), account, id)
			t.wantError("KeyByID", err, apierr.ErrNotFound)
			_, err = t.store.UpdateKey(t.Context(), account, id, func(*driver.Key, *audit.Entry) error {
				t.Error("UpdateKey called the function change for a key that does not exist")
				return nil
			})
			t.wantError("UpdateKey", err, apierr.ErrNotFound)
			t.wantError("DeleteKey", t.store.DeleteKey(t.Context(), account, id, nil, audit.Entry{}), apierr.ErrNotFound)
			t.must(t.store.RecordKeyUse(t.Context(), []driver.KeyUse{{Account: account, ID: id, At: some}}))
		}
		wantSame(t, "KeyByID", t.key("acct", "key"), key)
		t.wantKeyAt(key.Hash, key)
	})

	run("keeps account and ID apart", func(t *tester) {
		keys := []driver.Key{
			newKey("a", "bc"), newKey("ab", "c"), newKey("a/b", "c"), newKey("a", "b/c"), newKey("a:b", "c"), newKey("a", "b:c"),
			newKey("a", "c"), newKey("a b", "c"), newKey("a", "b c"), newKey("a/", "c"), newKey("a", "/c"), newKey("A", "bc"),
		}
		t.createKeys(keys...)
		for i, key := range keys {
			wantSame(t, "KeyByID", t.key(key.Account, key.ID), key)
			t.must(t.store.DeleteKey(t.Context(), key.Account, key.ID, nil, audit.Entry{}))
			for _, rest := range keys[i+1:] {
				wantSame(t, "KeyByID", t.key(rest.Account, rest.ID), rest)
			}
		}
	})
}

func createKey(run runner) {
	run("returns ErrExists if the account has a key with the same ID", func(t *tester) {
		key, again := rotatedKey("acct", "key"), newKey("acct", "key")
		again.Hash = hashOf("again")
		t.createKeys(key)
		t.wantError("CreateKey", t.store.CreateKey(t.Context(), again, driver.CreateOptions{}), apierr.ErrExists)
		t.wantError("CreateKey with the same key", t.store.CreateKey(t.Context(), key, driver.CreateOptions{}), apierr.ErrExists)
		wantSame(t, "KeyByID", t.key("acct", "key"), key)
		t.wantNoKeyAt(again.Hash)
	})

	run("another account may have a key with the same ID", func(t *tester) {
		key, other := newKey("acct", "key"), newKey("other", "key")
		t.createKeys(key, other)
		wantSame(t, "KeyByID", t.key("acct", "key"), key)
		wantSame(t, "KeyByID", t.key("other", "key"), other)
		t.must(t.store.DeleteKey(t.Context(), "acct", "key", nil, audit.Entry{}))
		t.wantKeyAt(other.Hash, other)
	})

	run("returns ErrExists if any key has one of its hashes", func(t *tester) {
		owner := rotatedKey("acct", "owner")
		t.createKeys(owner)
		for _, account := range []string{"acct", "other"} {
			for _, inUse := range []driver.Hash{owner.Hash, owner.Previous} {
				current, previous := rotatedKey(account, "new"), rotatedKey(account, "new")
				current.Hash, previous.Previous = inUse, inUse
				t.wantError("CreateKey", t.store.CreateKey(t.Context(), current, driver.CreateOptions{}), apierr.ErrExists)
				t.wantError("CreateKey", t.store.CreateKey(t.Context(), previous, driver.CreateOptions{}), apierr.ErrExists)
				// The store must have stored neither the key nor its other hash.
				t.wantNoKeyAt(current.Previous)
				t.wantNoKeyAt(previous.Hash)
				_, err := t.store.KeyByID(t.Context(), account, "new")
				t.wantError("KeyByID", err, apierr.ErrNotFound)
			}
		}
		t.wantKeyAt(owner.Hash, owner)
		t.wantKeyAt(owner.Previous, owner)
	})

	run("the ID and hashes of a deleted key are free", func(t *tester) {
		key := rotatedKey("acct", "key")
		t.createKeys(key)
		t.must(t.store.DeleteKey(t.Context(), "acct", "key", nil, audit.Entry{}))
		t.createKeys(key)
		t.wantKeyAt(key.Previous, key)
	})

	run("a previous hash that is removed is not found, and is free", func(t *tester) {
		key := rotatedKey("acct", "key")
		removed := key.Previous
		t.createKeys(key)
		changed, err := t.store.UpdateKey(t.Context(), "acct", "key", func(k *driver.Key, _ *audit.Entry) error {
			k.Previous, k.PreviousHint, k.PreviousExpiresAt = driver.Hash{}, "", time.Time{}
			return nil
		})
		t.must(err)
		t.wantNoKeyAt(removed)
		t.wantKeyAt(key.Hash, changed)
		other := newKey("acct", "other")
		other.Hash = removed
		t.createKeys(other)
		t.wantKeyAt(removed, other)
	})

	run("does not store uses", func(t *tester) {
		key := rotatedKey("acct", "key")
		used := key
		used.LastUsedAt, used.PreviousUsedAt = some, some
		t.createKeys(used)
		wantSame(t, "KeyByID", t.key("acct", "key"), key)
	})

	run("if several keys with the same hash or ID are created concurrently, one succeeds", func(t *tester) {
		for round := range 25 {
			var created, createdID atomic.Int32
			hash, id := hashOf("round", numbered("", round)), numbered("same", round)
			inParallel(8, func(i int) {
				sameHash := newKey(numbered("acct", i%3), numbered("key", 10*round+i))
				if sameHash.Hash = hash; i%2 == 0 {
					sameHash.Hash, sameHash.Previous = hashOf(sameHash.ID), hash
				}
				if err := t.store.CreateKey(t.Context(), sameHash, driver.CreateOptions{}); err == nil {
					created.Add(1)
				} else {
					t.wantError("CreateKey", err, apierr.ErrExists)
				}
				sameID := newKey("acct", id)
				sameID.Hash = hashOf(id, numbered("", i))
				if err := t.store.CreateKey(t.Context(), sameID, driver.CreateOptions{}); err == nil {
					createdID.Add(1)
				} else {
					t.wantError("CreateKey", err, apierr.ErrExists)
				}
			})
			if created.Load() != 1 || createdID.Load() != 1 {
				t.Errorf("created %d keys with the same hash and %d with the same ID, want 1 and 1", created.Load(), createdID.Load())
			}
			found, err := t.store.KeyByHash(t.Context(), hash)
			t.must(err)
			wantSame(t, "KeyByID", t.key(found.Account, found.ID), found)
		}
	})
}

func keyByHash(run runner) {
	run("finds by Hash and by Previous, expired or not", func(t *tester) {
		key := rotatedKey("acct", "key")
		key.ExpiresAt, key.PreviousExpiresAt = time.UnixMilli(2000).UTC(), time.UnixMilli(1000).UTC()
		t.createKeys(key, newKey("acct", "other"))
		t.wantKeyAt(key.Hash, key)
		t.wantKeyAt(key.Previous, key)
	})

	run("ErrNotFound", func(t *tester) {
		t.wantNoKeyAt(hashOf("nobody"))
		key := newKey("acct", "key")
		t.createKeys(key)
		for i := range key.Hash.Sum {
			near := key.Hash
			near.Sum[i]++
			t.wantNoKeyAt(near)
		}
	})

	run("leaves the uses zero", func(t *tester) {
		key := rotatedKey("acct", "key")
		t.createKeys(key)
		t.must(t.store.RecordKeyUse(t.Context(), []driver.KeyUse{
			{Account: "acct", ID: "key", Hash: key.Hash, At: some}, {Account: "acct", ID: "key", Hash: key.Previous, At: some},
		}))
		t.wantKeyAt(key.Hash, key)
		t.wantKeyAt(key.Previous, key)
	})

	run("sees every change that has returned", func(t *tester) {
		for round := range 20 {
			key := newKey("acct", numbered("key", round))
			before, after := key.Hash, hashOf(key.ID, "rotated")
			t.createKeys(key)
			var rotated, deleted, done atomic.Bool
			inParallel(4, func(i int) {
				if i == 0 {
					defer done.Store(true)
					_, err := t.store.UpdateKey(t.Context(), key.Account, key.ID, func(key *driver.Key, _ *audit.Entry) error {
						key.Hash = after
						return nil
					})
					rotated.Store(true)
					t.wantError("UpdateKey", err, nil)
					t.wantError("DeleteKey", t.store.DeleteKey(t.Context(), key.Account, key.ID, nil, audit.Entry{}), nil)
					deleted.Store(true)
					return
				}
				for last := false; !last; {
					last = done.Load()
					wasRotated := rotated.Load()
					if _, err := t.store.KeyByHash(t.Context(), before); err == nil && wasRotated {
						t.Error("found by a former hash after UpdateKey had returned")
					}
					wasDeleted := deleted.Load()
					if _, err := t.store.KeyByHash(t.Context(), after); err == nil && wasDeleted {
						t.Error("found after DeleteKey had returned")
					}
				}
			})
		}
	})
}
