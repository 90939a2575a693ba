package storetest

import (
	"crypto/sha256"
	"sync/atomic"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/store/driver"
)

// keyOf returns a key whose token is value.
func keyOf(account, id, value string) driver.Key {
	key := newKey(account, id)
	key.Hash = valueHash(value)
	return key
}

func valueHash(value string) driver.Hash { return driver.Hash{Sum: sha256.Sum256([]byte(value))} }

// by returns options for a creation that was requested with the token value of the key keyID.
// replaced means that a rotation had already replaced this value.
func by(keyID, value string, replaced bool) driver.CreateOptions {
	return driver.CreateOptions{By: auth.NewCredential(keyID, valueHash(value).Sum, replaced)}
}

// rotate gives a key the new token value.
func (t *tester) rotate(account, id, value string) {
	t.Helper()
	_, err := t.store.UpdateKey(t.Context(), account, id, func(key *driver.Key, _ *audit.Entry) error {
		key.Previous, key.Hash = key.Hash, valueHash(value)
		key.PreviousExpiresAt = some
		return nil
	})
	t.must(err)
}

// callers tests how creations check the caller's credential.
func (c creator) callers(run runner) {
	run("creates for a credential that still matches its key", func(t *tester) {
		t.must(t.store.CreateKey(t.Context(), keyOf("acct", "caller", "one"), driver.CreateOptions{}))
		t.must(c.create(t, "acct", "a", by("caller", "one", false)))
		t.wantError("other value", c.create(t, "acct", "b", by("caller", "two", false)), auth.ErrCredentialChanged)
		t.wantError("value marked as replaced that is current", c.create(t, "acct", "b", by("caller", "one", true)), auth.ErrCredentialChanged)
		t.wantError("other key", c.create(t, "acct", "b", by("nobody", "one", false)), auth.ErrCredentialChanged)
		t.wantError("other account", c.create(t, "acct2", "b", by("caller", "one", false)), auth.ErrCredentialChanged)

		t.rotate("acct", "caller", "two")
		t.wantError("replaced value", c.create(t, "acct", "b", by("caller", "one", false)), auth.ErrCredentialChanged)
		wantSame(t, "exists", c.exists(t, "acct", "b"), false)
		t.must(c.create(t, "acct", "b", by("caller", "one", true)))
		t.must(c.create(t, "acct", "c", by("caller", "two", false)))
		t.rotate("acct", "caller", "three")
		t.wantError("value replaced twice", c.create(t, "acct", "d", by("caller", "one", true)), auth.ErrCredentialChanged)

		for _, disabled := range []bool{true, false} {
			_, err := t.store.UpdateKey(t.Context(), "acct", "caller", func(key *driver.Key, _ *audit.Entry) error {
				key.Disabled = disabled
				return nil
			})
			t.must(err)
			if disabled {
				t.wantError("disabled key", c.create(t, "acct", "d", by("caller", "three", false)), auth.ErrCredentialChanged)
				t.wantError("disabled key, replaced value", c.create(t, "acct", "d", by("caller", "two", true)), auth.ErrCredentialChanged)
				wantSame(t, "exists", c.exists(t, "acct", "d"), false)
			}
		}
		t.must(c.create(t, "acct", "e", by("caller", "three", false)))

		t.must(t.store.DeleteKey(t.Context(), "acct", "caller", nil, audit.Entry{}))
		t.wantError("deleted key", c.create(t, "acct", "d", by("caller", "three", false)), auth.ErrCredentialChanged)
		t.wantError("deleted key, replaced value", c.create(t, "acct", "d", by("caller", "two", true)), auth.ErrCredentialChanged)
		wantSame(t, "exists", c.exists(t, "acct", "d"), false)
	})

	run("checks the credential first", func(t *tester) {
		t.must(c.create(t, "acct", "a", request("request", 1)))
		again := request("request", 1)
		again.By, again.MaxCount = by("nobody", "one", false).By, 1
		t.wantError("repeated request", c.create(t, "acct", "a", again), auth.ErrCredentialChanged)
	})

	run("creates nothing for a key after its deletion", func(t *tester) {
		for round := range 5 {
			account := numbered("acct", round)
			t.must(t.store.CreateKey(t.Context(), keyOf(account, "caller of "+account, account), driver.CreateOptions{}))
			options := by("caller of "+account, account, false)
			var deleted atomic.Bool
			inParallel(5, func(i int) {
				if i == 0 {
					t.must(t.store.DeleteKey(t.Context(), account, "caller of "+account, nil, audit.Entry{}))
					deleted.Store(true)
					return
				}
				for j := range 20 {
					late := deleted.Load()
					err := c.create(t, account, numbered(numbered(account, i), j), options)
					if late || err != nil {
						t.wantError("create", err, auth.ErrCredentialChanged)
					}
				}
			})
		}
	})
}
