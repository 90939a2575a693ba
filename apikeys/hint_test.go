package apikeys_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/testclock"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/memory"
)

// A hint ends with the last random characters of the value and contains none of its checksum.
func TestHint(t *testing.T) {
	for _, prefix := range []string{"sak", "live_sak", "abcdefghijklmnop"} {
		service := newService(t, memory.New(), apikeys.Config{Prefix: prefix})
		key, token := create(t, service, time.Time{})
		random := token.Reveal()[:len(prefix)+1+32]
		want := prefix + "_…" + random[len(random)-4:]
		if key.Hint != want || token.Hint() != want || key.PreviousHint != "" {
			t.Errorf("the hint of %q is %q, of its key %q and %q; want %q", token.Reveal(), token.Hint(), key.Hint, key.PreviousHint, want)
		}
		if got, err := service.Get(t.Context(), account, key.ID); err != nil || got.Hint != want {
			t.Errorf("the key has the hint %q, %v", got.Hint, err)
		}
	}
	if hint := (apikeys.Token{}).Hint(); hint != "" {
		t.Errorf("no token has the hint %q", hint)
	}
}

func TestHint_RotatedKey_HasBothUntilGracePeriodEnds(t *testing.T) {
	service, clock := newClocked(t)
	key, first := create(t, service, time.Time{})
	_, second := rotate(t, service, key.ID, time.Hour)
	if key = get(t, service, key.ID); key.Hint != second.Hint() || key.PreviousHint != first.Hint() {
		t.Errorf("rotated: %q and %q, want %q and %q", key.Hint, key.PreviousHint, second.Hint(), first.Hint())
	}
	clock.Set(noon.Add(time.Hour))
	if key = get(t, service, key.ID); key.Hint != second.Hint() || key.PreviousHint != "" {
		t.Errorf("after the grace period: %q and %q, want %q and none", key.Hint, key.PreviousHint, second.Hint())
	}
	name := "another"
	key, err := service.Update(t.Context(), account, key.ID, apikeys.UpdateParams{Name: &name})
	if err != nil || key.Hint != second.Hint() {
		t.Errorf("renamed: %q, %v", key.Hint, err)
	}
}

// A repeated creation returns the hint of the value, but not the value.
func TestHint_RepeatedCreate_IsReturned(t *testing.T) {
	service, _ := newClocked(t)
	params := apikeys.CreateParams{Name: "n", Scopes: readFiles, IdempotencyKey: "once"}
	_, first, err := service.Create(t.Context(), account, params)
	if err != nil {
		t.Fatal(err)
	}
	key, token, err := service.Create(t.Context(), account, params)
	if err != nil || key.Hint != first.Hint() || token.Reveal() != "" {
		t.Errorf("again: the hint %q, %v, want %q and no value", key.Hint, err, first.Hint())
	}
}

func TestLookup(t *testing.T) {
	service, clock := newClocked(t)
	key, first := create(t, service, noon.Add(3*time.Hour))
	_, second := rotate(t, service, key.ID, time.Hour)
	lookUp := func(token apikeys.Token) apikeys.Value {
		t.Helper()
		value, err := service.Lookup(t.Context(), token.Reveal())
		if err != nil || value.Key.ID != key.ID || value.Key.Account != account || value.Hint != token.Hint() {
			t.Fatalf("Lookup = %+v, %v", value, err)
		}
		return value
	}
	for _, at := range []time.Duration{0, time.Hour, 3 * time.Hour} {
		clock.Set(noon.Add(at))
		if v := lookUp(first); !v.Replaced || v.Live != (at < time.Hour) || !v.ExpiresAt.Equal(noon.Add(time.Hour)) {
			t.Errorf("after %v the first value is %+v", at, v)
		}
		if v := lookUp(second); v.Replaced || v.Live != (at < 3*time.Hour) || !v.ExpiresAt.Equal(noon.Add(3*time.Hour)) {
			t.Errorf("after %v the second value is %+v", at, v)
		}
	}
	if used := get(t, service, key.ID).LastUsedAt; !used.IsZero() {
		t.Errorf("Lookup was noted as a use at %v", used)
	}
	rotate(t, service, key.ID, 0)
	text := first.Reveal()
	for _, token := range []string{text, "", "sak_", text[:len(text)-1] + "!", forge("sak", strings.Repeat("a", 32))} {
		if v, err := service.Lookup(t.Context(), token); !errors.Is(err, apierr.ErrNotFound) || v.Key.ID != "" {
			t.Errorf("Lookup of what no key has = %+v, %v", v, err)
		} else if token != "" && strings.Contains(err.Error(), token) {
			t.Errorf("the error shows the value: %v", err)
		}
	}
}

// An imported key has no hint until it is rotated, because only its digest is known.
func TestHint_ImportedKey_IsMissingUntilRotation(t *testing.T) {
	service, _ := newImporter(t, memory.New())
	id := imports(t, service, ofTable("plain", sum(oldValue(1))))
	value, err := service.Lookup(t.Context(), oldValue(1))
	if err != nil || value.Key.ID != id || value.Hint != "" || !value.Live {
		t.Errorf("Lookup = %+v, %v", value, err)
	}
	_, token := rotate(t, service, id, time.Hour)
	if key := get(t, service, id); key.Hint != token.Hint() || key.PreviousHint != "" {
		t.Errorf("rotated it has the hints %q and %q", key.Hint, key.PreviousHint)
	}
}

func get(t *testing.T, service *apikeys.KeyService, id string) apikeys.Key {
	t.Helper()
	key, err := service.Get(t.Context(), account, id)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// The creator of a key is the key that made the request, or else the actor of the context. The
// creator of an imported key is unknown.
func TestCreatedBy(t *testing.T) {
	service, _ := newImporter(t, memory.New())
	person := audit.Actor{Kind: audit.ActorPerson, ID: "ann"}
	ctx := audit.WithActor(t.Context(), person)
	params := apikeys.CreateParams{Name: "n", Scopes: readFiles}
	key, token, err := service.Create(ctx, account, params)
	if err != nil || key.CreatedBy != person {
		t.Errorf("by a person: %+v, %v", key.CreatedBy, err)
	}
	params.By = service.Credential(t.Context(), token.Reveal(), auth.Principal{Account: account, KeyID: key.ID})
	made, _, err := service.Create(t.Context(), account, params)
	if want := (audit.Actor{Kind: audit.ActorKey, ID: key.ID}); err != nil || made.CreatedBy != want {
		t.Errorf("by a key: %+v, %v", made.CreatedBy, err)
	}
	rotate(t, service, key.ID, 0)
	if key = get(t, service, key.ID); key.CreatedBy != person {
		t.Errorf("rotated it was created by %+v", key.CreatedBy)
	}
	if key := get(t, service, imports(t, service, ofTable("plain", sum(oldValue(1))))); key.CreatedBy != (audit.Actor{}) {
		t.Errorf("imported it was created by %+v", key.CreatedBy)
	}
}

// Keys created by the host count toward the limit. The host and an unlimited key can create keys up
// to the full limit.
func TestCreate_LimitedKey_CreatesUpToHalf(t *testing.T) {
	expires := noon.Add(time.Hour)
	for limit, half := range map[int]int{1: 1, 2: 1, 6: 3, 7: 3, -1: 12} {
		for name, params := range map[string]apikeys.CreateParams{
			"fewer scopes": {Name: "n", Scopes: readFiles},
			"expires":      {Name: "n", Scopes: scopes.Specified(), ExpiresAt: expires},
			"unlimited":    {Name: "n", Scopes: scopes.Specified()},
		} {
			service := newService(t, memory.New(), apikeys.Config{MaxPerAccount: limit, Now: testclock.At(noon).Now})
			key, token, err := service.Create(t.Context(), account, params)
			if err != nil {
				t.Fatal(err)
			}
			want := half
			if name == "unlimited" && limit > 0 {
				want = limit
			}
			params.By = service.Credential(t.Context(), token.Reveal(), auth.Principal{Account: account, KeyID: key.ID, Scopes: key.Scopes, ExpiresAt: key.ExpiresAt})
			count := 1
			for ; count < 12 && err == nil; count++ {
				_, _, err = service.Create(t.Context(), account, params)
			}
			if err != nil {
				count--
			}
			if count != want || (limit > 0) != errors.Is(err, apierr.ErrLimit) {
				t.Errorf("limit %d, %s: got %d keys, then %v; want %d", limit, name, count, err, want)
			}
			if full := (*apierr.LimitError)(nil); errors.As(err, &full) && *full != (apierr.LimitError{Resource: "API keys", Limit: want, Limited: name != "unlimited"}) {
				t.Errorf("limit %d, %s: got %+v", limit, name, full)
			}
			params.By = auth.Credential{}
			for err = nil; count < limit && err == nil; count++ {
				_, _, err = service.Create(t.Context(), account, params)
			}
			if err != nil {
				t.Errorf("limit %d, %s: creation by the host up to the limit: %v", limit, name, err)
			}
		}
	}
}
