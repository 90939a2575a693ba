package storetest

import (
	"crypto/sha256"
	"sync/atomic"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/notices"
)

// keyOf returns a key whose value that is.
func keyOf(account, id, value string) apikeys.Key {
	key := newKey(account, id)
	key.Hash = valueHash(value)
	return key
}

func valueHash(value string) apikeys.Hash { return apikeys.Hash{Sum: sha256.Sum256([]byte(value))} }

// by returns the options of what a value of a key asks for.
func by(keyID, value string, replaced bool) apikeys.CreateOptions {
	return apikeys.CreateOptions{By: apikeys.CredentialOf(value, auth.Principal{KeyID: keyID, Replaced: replaced})}
}

// rotate gives a key another value.
func (t *tester) rotate(account, id, value string) {
	t.Helper()
	_, err := t.store.UpdateKey(t.Context(), account, id, func(key *apikeys.Key, _ *notices.Notice) error {
		key.Previous, key.Hash = key.Hash, valueHash(value)
		key.PreviousExpiresAt = some
		return nil
	})
	t.must(err)
}

// callers tests what Create says of those who ask.
func (c creator) callers(run runner) {
	run("what a value asks for is created as long as it is its key's", func(t *tester) {
		t.must(t.store.CreateKey(t.Context(), keyOf("acct", "caller", "one"), apikeys.CreateOptions{}))
		t.must(c.create(t, "acct", "a", by("caller", "one", false)))
		t.wantError("by another value", c.create(t, "acct", "b", by("caller", "two", false)), auth.ErrCredentialChanged)
		t.wantError("by a value that is none", c.create(t, "acct", "b", by("caller", "one", true)), auth.ErrCredentialChanged)
		t.wantError("by another key", c.create(t, "acct", "b", by("nobody", "one", false)), auth.ErrCredentialChanged)
		t.wantError("in another account", c.create(t, "acct2", "b", by("caller", "one", false)), auth.ErrCredentialChanged)

		t.rotate("acct", "caller", "two")
		t.wantError("by the value before", c.create(t, "acct", "b", by("caller", "one", false)), auth.ErrCredentialChanged)
		wantSame(t, "exists", c.exists(t, "acct", "b"), false)
		t.must(c.create(t, "acct", "b", by("caller", "one", true)))
		t.must(c.create(t, "acct", "c", by("caller", "two", false)))
		t.rotate("acct", "caller", "three")
		t.wantError("by the value before the one before", c.create(t, "acct", "d", by("caller", "one", true)), auth.ErrCredentialChanged)

		t.must(t.store.DeleteKey(t.Context(), "acct", "caller", nil, notices.Notice{}))
		t.wantError("by a key that is deleted", c.create(t, "acct", "d", by("caller", "three", false)), auth.ErrCredentialChanged)
		t.wantError("by a key that is deleted", c.create(t, "acct", "d", by("caller", "two", true)), auth.ErrCredentialChanged)
		wantSame(t, "exists", c.exists(t, "acct", "d"), false)
	})

	run("who asks is looked at before all else", func(t *tester) {
		t.must(c.create(t, "acct", "a", request("request", 1)))
		again := request("request", 1)
		again.By, again.MaxCount = by("nobody", "one", false).By, 1
		t.wantError("a request made before", c.create(t, "acct", "a", again), auth.ErrCredentialChanged)
	})

	run("nothing is created by a key once it is deleted", func(t *tester) {
		for round := range 5 {
			account := numbered("acct", round)
			t.must(t.store.CreateKey(t.Context(), keyOf(account, "caller of "+account, account), apikeys.CreateOptions{}))
			options := by("caller of "+account, account, false)
			var deleted atomic.Bool
			inParallel(5, func(i int) {
				if i == 0 {
					t.must(t.store.DeleteKey(t.Context(), account, "caller of "+account, nil, notices.Notice{}))
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
