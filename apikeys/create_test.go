package apikeys_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/scopes"
)

func TestCreate_ReturnsStoredKey(t *testing.T) {
	service, clock := newClocked(t)
	clock.Set(noon.Add(1234567 * time.Nanosecond).In(time.FixedZone("", 7200)))
	granted := scopes.Of(scopes.SecretsWrite, scopes.FilesRead)
	key, token, err := service.Create(t.Context(), account, apikeys.CreateParams{
		Name: "Ci/Cd 🔑", Scopes: granted, ExpiresAt: noon.Add(time.Hour + 999999),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := apikeys.Key{
		ID: key.ID, Account: account, Name: "Ci/Cd 🔑", Scopes: granted, Hash: token.Hash(), Hint: token.Hint(), CreatedBy: audit.Actor{Kind: audit.ActorHost},
		CreatedAt: noon.Add(time.Millisecond), ExpiresAt: noon.Add(time.Hour),
	}
	if diff := cmp.Diff(want, key, byValue); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if key.CreatedAt.Location() != time.UTC || key.ExpiresAt.Location() != time.UTC {
		t.Errorf("%v and %v are not in UTC", key.CreatedAt, key.ExpiresAt)
	}
	got, err := service.Get(t.Context(), account, key.ID)
	if diff := cmp.Diff(want, got, byValue); err != nil || diff != "" {
		t.Errorf("stored (-want +got), %v:\n%s", err, diff)
	}
}

func TestCreate_InvalidInput_ReturnsError(t *testing.T) {
	const anyName = "test"
	never := time.Time{}
	far := time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC)
	tests := []struct {
		what    string
		account string
		name    string
		scopes  scopes.Set
		expires time.Time
		field   string // "" means that the params are valid
	}{
		{"the least", "a", "x", readFiles, never, ""},
		{"everything", account, anyName, scopes.Specified(), far, ""},

		{"a name of 128 characters", account, strings.Repeat("x", 128), readFiles, never, ""},
		{"a name of 128 characters, not bytes", account, strings.Repeat("🔑", 128), readFiles, never, ""},
		{"a name of one space", account, " ", readFiles, never, "name"},
		{"a name with markup", account, `<b>"&'\%s`, readFiles, never, ""},
		{"no name", account, "", readFiles, never, "name"},
		{"a name of 129 characters", account, strings.Repeat("x", 129), readFiles, never, "name"},
		{"a name of 129 wide characters", account, strings.Repeat("é", 129), readFiles, never, "name"},
		{"a huge name", account, strings.Repeat("x", 1<<20), readFiles, never, "name"},
		{"a newline", account, "a\nb", readFiles, never, "name"},
		{"a NUL", account, "a\x00b", readFiles, never, "name"},
		{"a tab", account, "a\tb", readFiles, never, "name"},
		{"an escape sequence", account, "a\x1b[31m", readFiles, never, "name"},
		{"DEL", account, "a\x7f", readFiles, never, "name"},
		{"a C1 control character", account, "a\u0085", readFiles, never, "name"},
		{"invalid UTF-8", account, "a\xff", readFiles, never, "name"},
		{"half a surrogate pair", account, "a\xed\xa0\x80", readFiles, never, "name"},

		{"no scopes", account, anyName, scopes.Set{}, never, "scopes"},

		{"an expiry in a millisecond", account, anyName, readFiles, noon.Add(time.Millisecond), ""},
		{"the last millisecond", account, anyName, readFiles, far.Add(999999), ""},
		{"an expiry now", account, anyName, readFiles, noon, "expiresAt"},
		{"now in another zone", account, anyName, readFiles, noon.In(time.FixedZone("", 3600)), "expiresAt"},
		{"less than a millisecond from now", account, anyName, readFiles, noon.Add(time.Millisecond - 1), "expiresAt"},
		{"the past", account, anyName, readFiles, noon.Add(-time.Millisecond), "expiresAt"},
		{"the distant past", account, anyName, readFiles, time.Unix(0, 0), "expiresAt"},
		{"before our era", account, anyName, readFiles, time.Date(-5000, 1, 1, 0, 0, 0, 0, time.UTC), "expiresAt"},
		{"the year 10000", account, anyName, readFiles, far.Add(time.Millisecond), "expiresAt"},
		{"9999 elsewhere, 10000 in UTC", account, anyName, readFiles, far.In(time.FixedZone("", -3600)).Add(time.Hour), "expiresAt"},
		{"the end of time", account, anyName, readFiles, time.Unix(1<<55, 0), "expiresAt"},

		{"an account of 128 bytes", strings.Repeat("a", 128), anyName, readFiles, never, ""},
		{"no account", "", anyName, readFiles, never, "account"},
		{"a long account", strings.Repeat("a", 129), anyName, readFiles, never, "account"},
		{"a control character in the account", "a\x00", anyName, readFiles, never, "account"},
		{"invalid UTF-8 in the account", "a\xff", anyName, readFiles, never, "account"},
	}
	for _, test := range tests {
		t.Run(test.what, func(t *testing.T) {
			store := newSpy()
			service := newService(t, store, apikeys.Config{Now: func() time.Time { return noon }})
			params := apikeys.CreateParams{Name: test.name, Scopes: test.scopes, ExpiresAt: test.expires}
			key, token, err := service.Create(t.Context(), test.account, params)
			if test.field == "" {
				if err != nil || store.writes != 1 {
					t.Fatalf("%v, %d writes", err, store.writes)
				}
				accepted(t, service, token.Reveal())
				return
			}
			var invalid *apierr.ValidationError
			if !errors.As(err, &invalid) || invalid.Field != test.field || invalid.Reason == "" {
				t.Errorf("got %v, want a ValidationError for %s", err, test.field)
			}
			if len(err.Error()) > 200 {
				t.Errorf("the error is long: %v", err)
			}
			if key.ID != "" || token.Reveal() != "" || store.writes != 0 {
				t.Errorf("it left %v and %d writes", key, store.writes)
			}
		})
	}
}

func TestCreate_StoreFails_ReturnsItsError(t *testing.T) {
	service, _ := newClocked(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	key, token, err := service.Create(ctx, account, apikeys.CreateParams{Name: "x", Scopes: readFiles})
	if !errors.Is(err, context.Canceled) || key.ID != "" || token.Reveal() != "" {
		t.Errorf("got %v, %v", key, err)
	}
}

func TestListIsNewestFirst(t *testing.T) {
	service, clock := newClocked(t)
	var want []string
	for i := range 5 {
		clock.Set(noon.Add(-time.Duration(i) * time.Second)) // the clock may be set back
		key, _ := create(t, service, time.Time{})
		want = append([]string{key.ID}, want...)
	}
	var got []string
	for query := (apikeys.KeyQuery{Limit: 2}); ; {
		keys, err := service.List(t.Context(), account, query)
		if err != nil || len(keys.Keys) > 2 {
			t.Fatal(keys, err)
		}
		for _, key := range keys.Keys {
			got = append(got, key.ID)
		}
		if query.After = keys.Next; query.After == "" {
			break
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, limit := range []int{0, -1} {
		var invalid *apierr.ValidationError
		if _, err := service.List(t.Context(), account, apikeys.KeyQuery{Limit: limit}); !errors.As(err, &invalid) || invalid.Field != "limit" {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
}

// Callers cannot see or change keys of another account: the service treats such keys as missing.
func TestAccountsAreIsolated(t *testing.T) {
	service, _ := newClocked(t)
	key, token := create(t, service, time.Time{})
	for _, id := range []string{key.ID, "key_none"} {
		if _, err := service.Get(t.Context(), "acct_2", id); !errors.Is(err, apierr.ErrNotFound) || err.Error() != "get API key: not found" {
			t.Errorf("Get %s: %v", id, err)
		}
		if err := service.Delete(t.Context(), "acct_2", id, apikeys.DeleteParams{}); !errors.Is(err, apierr.ErrNotFound) || err.Error() != "delete API key: not found" {
			t.Errorf("Delete %s: %v", id, err)
		}
	}
	if keys, err := service.List(t.Context(), "acct_2", apikeys.KeyQuery{Limit: 10}); err != nil || len(keys.Keys) != 0 {
		t.Errorf("List: %v, %v", keys, err)
	}
	accepted(t, service, token.Reveal())
}

// TestFirst checks that many concurrent starts together create one first key for the account, and
// that later starts create none.
func TestFirst(t *testing.T) {
	service, clock := newClocked(t)
	first := apikeys.CreateParams{Name: "first", Scopes: readFiles, ExpiresAt: clock.Now().Add(time.Hour), First: true}
	var made, refused atomic.Int32
	var starts sync.WaitGroup
	for range 8 {
		starts.Go(func() {
			switch _, token, err := service.Create(context.WithoutCancel(t.Context()), account, first); {
			case err == nil && token.Reveal() != "":
				made.Add(1)
			case errors.Is(err, apikeys.ErrNotFirst) && token.Reveal() == "":
				refused.Add(1)
			default:
				t.Errorf("Create = %v", err)
			}
		})
	}
	starts.Wait()
	if made.Load() != 1 || refused.Load() != 7 {
		t.Errorf("%d made the key and %d were refused, want 1 and 7", made.Load(), refused.Load())
	}

	clock.Set(clock.Now().Add(2 * time.Hour)) // the key has expired
	first.ExpiresAt = time.Time{}
	if _, _, err := service.Create(t.Context(), account, first); !errors.Is(err, apikeys.ErrNotFirst) || errors.Is(err, apierr.ErrLimit) {
		t.Errorf("after it expired: %v", err)
	}
	if _, _, err := service.Create(t.Context(), "another", first); err != nil {
		t.Errorf("of another account: %v", err)
	}
	keys, err := service.List(t.Context(), account, apikeys.KeyQuery{Limit: 2})
	if err != nil || len(keys.Keys) != 1 {
		t.Fatalf("listed: %+v, %v", keys, err)
	}
	if err := service.Delete(t.Context(), account, keys.Keys[0].ID, apikeys.DeleteParams{}); err != nil {
		t.Fatal(err)
	}
	if _, token, err := service.Create(t.Context(), account, first); err != nil || token.Reveal() == "" {
		t.Errorf("after it was deleted: %v", err)
	}
}
