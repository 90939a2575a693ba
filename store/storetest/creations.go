package storetest

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/store/driver"
)

// A creator creates and deletes records of one kind. The same tests use it for CreateKey and
// CreateWebhook, which have the same contract for options.
type creator struct {
	create      func(t *tester, account, id string, options driver.CreateOptions) error
	createOther func(t *tester, account, id string, options driver.CreateOptions) error // creates the other kind
	remove      func(t *tester, account, id string) error
	exists      func(t *tester, account, id string) bool
}

var keyCreator = creator{
	create: func(t *tester, account, id string, options driver.CreateOptions) error {
		return t.store.CreateKey(t.Context(), newKey(account, id), options)
	},
	createOther: func(t *tester, account, id string, options driver.CreateOptions) error {
		return t.store.CreateWebhook(t.Context(), newWebhook(account, id), options)
	},
	remove: func(t *tester, account, id string) error {
		return t.store.DeleteKey(t.Context(), account, id, nil, audit.Entry{})
	},
	exists: func(t *tester, account, id string) bool {
		_, err := t.store.KeyByID(t.Context(), account, id)
		return !errors.Is(err, apierr.ErrNotFound)
	},
}

var webhookCreator = creator{
	create:      keyCreator.createOther,
	createOther: keyCreator.create,
	remove: func(t *tester, account, id string) error {
		return t.store.DeleteWebhook(t.Context(), account, id, nil, audit.Entry{})
	},
	exists: func(t *tester, account, id string) bool {
		_, err := t.store.WebhookByID(t.Context(), account, id)
		return !errors.Is(err, apierr.ErrNotFound)
	},
}

// duplicateOf returns the DuplicateRequestError that err wraps, or nil.
func duplicateOf(err error) *driver.DuplicateRequestError {
	duplicate, _ := errors.AsType[*driver.DuplicateRequestError](err)
	return duplicate
}

func keyOptions(run runner) {
	keyCreator.limits(run)
	keyCreator.requests(run)
	keyCreator.callers(run)
}

// deletedRequesters tests that DeleteKey removes the requests that were made with the key.
func deletedRequesters(run runner) {
	run("forgets only the requests that the key has made", func(t *tester) {
		for _, id := range []string{"gone", "stays"} {
			t.must(t.store.CreateKey(t.Context(), keyOf("acct", id, id), driver.CreateOptions{}))
			t.must(t.store.CreateKey(t.Context(), keyOf("other", id, id+" of other"), driver.CreateOptions{}))
		}
		request := func(account, by, name string) driver.CreateOptions {
			options := driver.CreateOptions{IdempotencyKey: name, IdempotencyTTL: time.Hour, MaxIdempotencyKeys: 6}
			if by != "" {
				value := map[string]string{"acct": by, "other": by + " of other"}[account]
				options.By = auth.NewCredential(by, valueHash(value).Sum, false)
			}
			return options
		}
		for _, c := range []creator{keyCreator, webhookCreator} {
			for i, by := range []string{"gone", "gone", "stays", "", "gone", "gone"} {
				for _, account := range []string{"acct", "other"} {
					t.must(c.create(t, account, fmt.Sprintf("%s %d", account, i), request(account, by, numbered("request", i))))
				}
			}
			t.wantError("a seventh", c.create(t, "acct", "seventh", request("acct", "stays", "seventh")), apierr.ErrIdempotencyKeys)
		}
		t.must(t.store.DeleteKey(t.Context(), "acct", "gone", nil, audit.Entry{}))
		for _, c := range []creator{keyCreator, webhookCreator} {
			for _, i := range []int{2, 3} {
				if err := c.create(t, "acct", "again", request("acct", "stays", numbered("request", i))); duplicateOf(err) == nil {
					t.Errorf("request %d of another key: err = %v, want a DuplicateRequestError", i, err)
				}
			}
			if err := c.create(t, "other", "again", request("other", "stays", numbered("request", 0))); duplicateOf(err) == nil {
				t.Errorf("request in another account: err = %v, want a DuplicateRequestError", err)
			}
			for _, i := range []int{0, 1, 4, 7} {
				t.must(c.create(t, "acct", fmt.Sprintf("after %d", i), request("acct", "stays", numbered("request", i))))
			}
			t.wantError("a seventh", c.create(t, "acct", "seventh", request("acct", "stays", "seventh")), apierr.ErrIdempotencyKeys)
		}
	})
}

func webhookOptions(run runner) {
	webhookCreator.limits(run)
	webhookCreator.requests(run)
	webhookCreator.callers(run)
}

// request returns options with the idempotency key name, a fingerprint made from sum, and a TTL of
// an hour.
func request(name string, sum byte) driver.CreateOptions {
	return driver.CreateOptions{IdempotencyKey: name, Fingerprint: [32]byte{sum}, IdempotencyTTL: time.Hour}
}

// wantRepeated checks that err is the error for repeating the request that created id.
func (c creator) wantRepeated(t *tester, err error, id string, sum byte) {
	t.Helper()
	repeated := duplicateOf(err)
	if repeated == nil || repeated.ID != id || repeated.Fingerprint != [32]byte{sum} {
		t.Errorf("err = %v (%+v), want a DuplicateRequestError for %q", err, repeated, id)
	}
}

func (c creator) limits(run runner) {
	limit := func(n int) driver.CreateOptions { return driver.CreateOptions{MaxCount: n} }

	run("returns ErrLimit if the account has MaxCount already", func(t *tester) {
		t.must(c.create(t, "acct", "a", limit(2)))
		t.must(c.create(t, "acct", "b", limit(2)))
		for range 2 {
			t.wantError("create", c.create(t, "acct", "c", limit(2)), apierr.ErrLimit)
			wantSame(t, "exists", c.exists(t, "acct", "c"), false)
		}
		t.wantError("create", c.create(t, "acct", "c", limit(1)), apierr.ErrLimit)
		t.must(c.create(t, "acct", "c", limit(3)))
		t.must(c.create(t, "acct", "d", limit(0)))
		t.wantError("create", c.create(t, "acct", "e", limit(3)), apierr.ErrLimit)
		t.must(c.create(t, "acct", "e", limit(5)))
		t.wantError("create", c.create(t, "acct", "f", limit(5)), apierr.ErrLimit)
	})

	run("applies the limit per account and kind", func(t *tester) {
		for _, account := range []string{"acct", "acct2", "acc", "t"} {
			t.must(c.createOther(t, account, "other of "+account, limit(1)))
			t.must(c.create(t, account, "first of "+account, limit(1)))
		}
		t.wantError("create", c.create(t, "acct", "second", limit(1)), apierr.ErrLimit)
	})

	run("does not count deleted records", func(t *tester) {
		for i := range 4 {
			id := numbered("id", i)
			t.must(c.create(t, "acct", id, limit(1)))
			t.wantError("create", c.create(t, "acct", "more", limit(1)), apierr.ErrLimit)
			t.must(c.remove(t, "acct", id))
		}
		t.must(c.create(t, "acct", "more", limit(1)))
	})

	run("does not count refused creations", func(t *tester) {
		t.must(c.create(t, "acct", "a", limit(2)))
		t.wantError("create", c.create(t, "acct", "a", limit(2)), apierr.ErrExists)
		t.must(c.create(t, "acct", "b", limit(2)))
		t.wantError("create", c.create(t, "acct", "c", limit(2)), apierr.ErrLimit)
	})

	run("never exceeds the limit with concurrent creations", func(t *tester) {
		const most = 5
		for round := range 5 {
			var created atomic.Int32
			account := numbered("acct", round)
			inParallel(8, func(i int) {
				for j := range 3 {
					id := numbered(numbered(account, i), j)
					err := c.create(t, account, id, limit(most))
					switch {
					case err == nil && i < 4 && j == 0: // makes room for another record
						t.wantError("remove", c.remove(t, account, id), nil)
					case err == nil:
						created.Add(1)
					default:
						t.wantError("create", err, apierr.ErrLimit)
					}
				}
			})
			for c.create(t, account, numbered("more of "+account, int(created.Load())), limit(most)) == nil {
				created.Add(1)
			}
			wantSame(t, "created", created.Load(), most)
		}
	})
}

func (c creator) requests(run runner) {
	run("returns DuplicateRequestError for a repeated request and creates nothing", func(t *tester) {
		t.must(c.create(t, "acct", "first", request("request", 1)))
		again := request("request", 2)
		again.MaxCount = 1
		for range 2 {
			c.wantRepeated(t, c.create(t, "acct", "second", again), "first", 1)
			c.wantRepeated(t, c.create(t, "acct", "first", again), "first", 1)
		}
		wantSame(t, "exists", c.exists(t, "acct", "second"), false)
	})

	run("also after the created record was deleted", func(t *tester) {
		t.must(c.create(t, "acct", "first", request("request", 1)))
		t.must(c.remove(t, "acct", "first"))
		c.wantRepeated(t, c.create(t, "acct", "second", request("request", 1)), "first", 1)
		wantSame(t, "exists", c.exists(t, "acct", "first"), false)
		wantSame(t, "exists", c.exists(t, "acct", "second"), false)
	})

	run("keeps requests of accounts and kinds apart", func(t *tester) {
		for i, name := range []string{"request", "request2", "Request", "t", long("r", 128)} {
			for j, account := range []string{"acct", "acc", "acctrequest", "a"} {
				t.must(c.create(t, account, numbered(numbered("id", i), j), request(name, 1)))
				t.must(c.createOther(t, account, numbered(numbered("other", i), j), request(name, 1)))
			}
		}
		c.wantRepeated(t, c.create(t, "acct", "id", request("t", 1)), numbered(numbered("id", 3), 0), 1)
	})

	run("remembers nothing without an idempotency key", func(t *tester) {
		t.must(c.create(t, "acct", "a", request("", 1)))
		t.must(c.create(t, "acct", "b", request("", 1)))
	})

	run("does not remember a refused creation", func(t *tester) {
		t.must(c.create(t, "acct", "a", driver.CreateOptions{}))
		t.wantError("create", c.create(t, "acct", "a", request("request", 1)), apierr.ErrExists)
		limited := request("request", 1)
		limited.MaxCount = 1
		t.wantError("create", c.create(t, "acct", "b", limited), apierr.ErrLimit)
		t.must(c.create(t, "acct", "b", request("request", 2)))
		c.wantRepeated(t, c.create(t, "acct", "c", limited), "b", 2)
	})

	run("forgets requests after their TTL", func(t *tester) {
		t.must(c.create(t, "acct", "first", request("request", 1)))
		c.wantRepeated(t, c.create(t, "acct", "second", request("request", 1)), "first", 1)
		brief := request("request", 2)
		brief.IdempotencyTTL = 2 * time.Millisecond
		time.Sleep(10 * brief.IdempotencyTTL)
		t.must(c.create(t, "acct", "second", brief))
		c.wantRepeated(t, c.create(t, "acct", "third", request("request", 1)), "second", 2)

		// The cleanup that removes the first request must not remove the second.
		for i := range 20 {
			t.must(c.create(t, "acct", numbered("other", i), request(numbered("other", i), 1)))
		}
		c.wantRepeated(t, c.create(t, "acct", "third", request("request", 1)), "second", 2)
	})

	few := func(name string) driver.CreateOptions {
		options := request(name, 1)
		options.MaxIdempotencyKeys = 3
		return options
	}

	run("returns ErrIdempotencyKeys if the account has the maximum already", func(t *tester) {
		for i := range 3 {
			t.must(c.create(t, "acct", numbered("id", i), few(numbered("request", i))))
			t.must(c.remove(t, "acct", numbered("id", i))) // the idempotency key must stay in use
		}
		for range 2 {
			t.wantError("one more", c.create(t, "acct", "more", few("another")), apierr.ErrIdempotencyKeys)
			wantSame(t, "exists", c.exists(t, "acct", "more"), false)
			c.wantRepeated(t, c.create(t, "acct", "more", few(numbered("request", 1))), numbered("id", 1), 1)
		}
		t.must(c.create(t, "acct", "unnamed", driver.CreateOptions{MaxIdempotencyKeys: 3}))
		t.wantError("the same id", c.create(t, "acct", "unnamed", few("another")), apierr.ErrExists)
		t.must(c.create(t, "acct2", "of another account", few("another")))
		t.must(c.createOther(t, "acct", "of the other kind", few("another")))
		more := few("another")
		more.MaxIdempotencyKeys = 4
		t.must(c.create(t, "acct", "fourth", more))
		more.IdempotencyKey = "a fifth"
		t.wantError("one more", c.create(t, "acct", "fifth", more), apierr.ErrIdempotencyKeys)
		more.MaxIdempotencyKeys, more.IdempotencyKey = 0, "any number"
		t.must(c.create(t, "acct", "fifth", more))
	})

	run("does not count forgotten requests", func(t *tester) {
		for i := range 100 {
			t.must(c.create(t, "acct", numbered("id", i), request(numbered("request", i), 1)))
		}
		brief := few("another")
		brief.IdempotencyTTL = 10 * time.Millisecond
		time.Sleep(2 * brief.IdempotencyTTL)
		brief.IdempotencyTTL = time.Millisecond
		for i := range 3 { // one by one, each after the store may have forgotten the earlier requests
			brief.IdempotencyKey = numbered("new", i)
			t.must(c.create(t, "acct", numbered("new", i), brief))
			time.Sleep(10 * brief.IdempotencyTTL)
		}

		// From here on new requests count, and earlier requests count until the store forgets them.
		brief.IdempotencyTTL = time.Hour
		created := 0
		for err := error(nil); err == nil && created <= 3; created++ {
			brief.IdempotencyKey = numbered("counts", created)
			if err = c.create(t, "acct", numbered("counts", created), brief); err != nil {
				t.wantError("one more", err, apierr.ErrIdempotencyKeys)
				break
			}
		}
		if created > 3 {
			t.Errorf("%d requests remembered, want at most 3", created)
		}
	})

	run("never exceeds the maximum with concurrent requests", func(t *tester) {
		for round := range 5 {
			account := numbered("acct", round)
			var created atomic.Int32
			inParallel(8, func(i int) {
				id := numbered(account, i)
				switch err := c.create(t, account, id, few(id)); {
				case err == nil:
					created.Add(1)
				default:
					t.wantError("create", err, apierr.ErrIdempotencyKeys)
				}
			})
			wantSame(t, "created", created.Load(), 3)
		}
	})

	run("creates once for concurrent repetitions of a request", func(t *tester) {
		for round := range 10 {
			name := numbered("request", round)
			var created atomic.Int32
			ids := make([]string, 8)
			inParallel(len(ids), func(i int) {
				id := numbered(name, i)
				err := c.create(t, "acct", id, request(name, 1))
				repeated := duplicateOf(err)
				switch {
				case err == nil:
					created.Add(1)
					ids[i] = id
				case repeated != nil:
					ids[i] = repeated.ID
				default:
					t.Errorf("create = %v", err)
				}
			})
			wantSame(t, "created", created.Load(), 1)
			for _, id := range ids {
				wantSame(t, "created ID", id, ids[0])
			}
			wantSame(t, "exists", c.exists(t, "acct", ids[0]), true)
		}
	})
}

// durableCreations tests that requests and limits survive a restart.
func durableCreations(reopened func(name string, before, after func(*tester))) {
	for kind, c := range map[string]creator{"keys": keyCreator, "webhooks": webhookCreator} {
		reopened("requests that created "+kind+", and their number", func(t *tester) {
			t.must(c.create(t, "acct", "first", request("request", 1)))
			t.must(c.create(t, "acct", "gone", request("another", 2)))
			t.must(c.remove(t, "acct", "gone"))
		}, func(t *tester) {
			c.wantRepeated(t, c.create(t, "acct", "second", request("request", 3)), "first", 1)
			c.wantRepeated(t, c.create(t, "acct", "second", request("another", 3)), "gone", 2)
			t.must(c.create(t, "acct", "second", driver.CreateOptions{MaxCount: 2}))
			t.wantError("create", c.create(t, "acct", "third", driver.CreateOptions{MaxCount: 2}), apierr.ErrLimit)
		})
	}
}
