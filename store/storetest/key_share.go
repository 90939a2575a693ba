package storetest

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
)

// shared returns options of a creation requested with a key's value, where API keys may create up
// to most keys.
func shared(keyID, value string, most int) apikeys.CreateOptions {
	options := by(keyID, value, false)
	options.Share = apikeys.Share{Max: most, CanManage: func(by *apikeys.Key) func(*apikeys.Key) bool {
		p := auth.Principal{Scopes: by.Scopes, ExpiresAt: by.ExpiresAt}
		return func(key *apikeys.Key) bool {
			return p.CanManage(auth.Target{Scopes: key.Scopes, ExpiresAt: key.ExpiresAt})
		}
	}}
	return options
}

// keyShare tests the limit of CreateKey for keys created by API keys.
func keyShare(run runner) {
	person := audit.Actor{Kind: audit.ActorPerson, ID: "ann"}
	withScopes := func(account, id string, by audit.Actor, members ...scopes.Scope) apikeys.Key {
		key := keyOf(account, id, id)
		key.CreatedBy, key.Scopes = by, scopes.Of(members...)
		return key
	}
	// made returns a key created by another key.
	made := func(account, by, id string) apikeys.Key {
		return withScopes(account, id, audit.Actor{Kind: audit.ActorKey, ID: by}, scopes.FilesRead)
	}
	// begin creates an account with a key that has all scopes and a key that does not.
	begin := func(t *tester, account string) {
		t.createKeys(withScopes(account, account+" wide", person, scopes.FilesRead, scopes.FilesWrite), withScopes(account, account+" narrow", person, scopes.FilesRead))
	}
	create := func(t *tester, account, by, id string, most int) error {
		return t.store.CreateKey(t.Context(), made(account, account+" "+by, id), shared(account+" "+by, account+" "+by, most))
	}

	run("a key that cannot manage all keys creates up to the share, other callers more", func(t *tester) {
		begin(t, "acct")
		begin(t, "other")
		t.must(create(t, "other", "narrow", "elsewhere", 3))
		for _, id := range []string{"a", "b", "c"} {
			t.must(create(t, "acct", "narrow", id, 3))
		}
		options := shared("acct narrow", "acct narrow", 3)
		options.IdempotencyKey, options.IdempotencyTTL = "request", time.Hour
		options.AuditEntry = audit.Entry{ID: "aud_1", Account: "acct", Action: audit.KeyCreated}
		t.wantError("fourth key", t.store.CreateKey(t.Context(), made("acct", "acct narrow", "d"), options), apikeys.ErrShareLimit)
		t.wantNoKeyAt(valueHash("d"))
		list, err := t.store.ListAuditEntries(t.Context(), "acct", audit.Query{Limit: 9})
		t.must(err)
		wantSame(t, "audit", list.Entries, nil)
		t.wantError("by a key it created", t.store.CreateKey(t.Context(), made("acct", "a", "d"), shared("a", "a", 3)), apikeys.ErrShareLimit)

		t.must(create(t, "acct", "wide", "d", 3))
		t.must(t.store.CreateKey(t.Context(), withScopes("acct", "by the host", audit.Actor{Kind: audit.ActorHost}, scopes.FilesRead), apikeys.CreateOptions{Share: options.Share}))
		t.wantError("after another key has created one", create(t, "acct", "narrow", "e", 4), apikeys.ErrShareLimit)
		t.must(create(t, "acct", "narrow", "e", 5))
		t.must(create(t, "acct", "narrow", "any number", 0))
	})

	run("keys created by the host or a person do not count", func(t *tester) {
		begin(t, "acct")
		for _, id := range []string{"a", "b", "c"} {
			t.createKeys(withScopes("acct", id, person, scopes.FilesRead))
		}
		t.must(create(t, "acct", "narrow", "d", 2))
		t.must(create(t, "acct", "narrow", "e", 2))
		t.wantError("third key", create(t, "acct", "narrow", "f", 2), apikeys.ErrShareLimit)
		t.must(t.store.DeleteKey(t.Context(), "acct", "d", nil, audit.Entry{}))
		t.must(create(t, "acct", "narrow", "f", 2))
	})

	run("does not scan the keys while API keys have created fewer", func(t *tester) {
		begin(t, "acct")
		for _, id := range []string{"a", "b", "c"} {
			t.createKeys(withScopes("acct", id, person, scopes.FilesRead))
		}
		asked := 0
		try := func(id string) error {
			options := shared("acct narrow", "acct narrow", 2)
			can := options.Share.CanManage
			options.Share.CanManage = func(by *apikeys.Key) func(*apikeys.Key) bool {
				asked++
				return can(by)
			}
			return t.store.CreateKey(t.Context(), made("acct", "acct narrow", id), options)
		}
		t.must(try("d"))
		t.must(try("e"))
		if asked > 0 {
			t.Error("Share.Exceeded called")
		}
		t.wantError("third key", try("f"), apikeys.ErrShareLimit)
		t.must(t.store.DeleteKey(t.Context(), "acct", "a", nil, audit.Entry{}))
		t.wantError("after the deletion of a key created by a person", try("f"), apikeys.ErrShareLimit)
		t.must(t.store.DeleteKey(t.Context(), "acct", "e", nil, audit.Entry{}))
		asked = 0
		t.must(try("f"))
		if asked > 0 {
			t.Error("Share.Exceeded called after a deletion")
		}
	})

	run("counts the keys that exist in the step", func(t *tester) {
		begin(t, "acct")
		t.must(t.store.DeleteKey(t.Context(), "acct", "acct wide", nil, audit.Entry{}))
		t.must(create(t, "acct", "narrow", "a", 1))
		t.must(create(t, "acct", "narrow", "b", 1)) // it can manage all keys
		lasting := withScopes("acct", "wider", person, scopes.FilesRead, scopes.AccountRead)
		t.createKeys(lasting)
		t.wantError("with a key that has more scopes", create(t, "acct", "narrow", "c", 1), apikeys.ErrShareLimit)
		t.must(t.store.DeleteKey(t.Context(), "acct", "wider", nil, audit.Entry{}))
		t.must(create(t, "acct", "narrow", "c", 1))
	})

	run("returns ErrCredentialChanged, ErrExists and ErrLimit first", func(t *tester) {
		begin(t, "acct")
		t.must(create(t, "acct", "narrow", "a", 1))
		t.wantError("other value", t.store.CreateKey(t.Context(), made("acct", "acct narrow", "b"), shared("acct narrow", "another", 1)), auth.ErrCredentialChanged)
		t.wantError("same key", create(t, "acct", "narrow", "a", 1), apikeys.ErrExists)
		options := shared("acct narrow", "acct narrow", 1)
		options.MaxCount = 3
		t.wantError("full account", t.store.CreateKey(t.Context(), made("acct", "acct narrow", "b"), options), apikeys.ErrLimit)
	})

	run("holds for concurrent creations", func(t *tester) {
		const most = 3
		begin(t, "acct")
		var created atomic.Int32
		inParallel(8, func(i int) {
			for j := range 2 {
				switch err := create(t, "acct", "narrow", numbered(numbered("key", i), j), most); {
				case err == nil:
					created.Add(1)
				case !errors.Is(err, apikeys.ErrShareLimit):
					t.Errorf("CreateKey: %v", err)
				}
			}
		})
		if n := created.Load(); n != most {
			t.Errorf("%d keys created, want %d", n, most)
		}
	})
}
