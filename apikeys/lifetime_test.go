package apikeys_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/testclock"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
)

const day = 24 * time.Hour

// wantExceeded fails the test unless err names the field and the limit of 30 days.
func wantExceeded(t *testing.T, what string, err error) {
	t.Helper()
	var invalid *apierr.ValidationError
	if !errors.As(err, &invalid) || invalid.Field != "expiresAt" || !strings.Contains(invalid.Reason, "30 days") {
		t.Errorf("%s: %v, want an error about expiresAt and 30 days", what, err)
	}
}

func TestMaxLifetime_Creation_IsLimited(t *testing.T) {
	clock := testclock.At(noon)
	s := newService(t, memory.New(), apikeys.Config{Now: clock.Now, MaxLifetime: 30 * day})
	params := apikeys.CreateParams{Name: "a", Scopes: readFiles, IdempotencyKey: "1"}
	key, token, err := s.Create(t.Context(), account, params)
	if err != nil || !key.ExpiresAt.Equal(noon.Add(30*day)) {
		t.Fatalf("without an expiry: expires at %v, %v", key.ExpiresAt, err)
	}
	clock.Add(time.Hour)
	if again, _, err := s.Create(t.Context(), account, params); err != nil || again.ID != key.ID || !again.ExpiresAt.Equal(key.ExpiresAt) {
		t.Errorf("again: %+v, %v", again, err)
	}
	params = apikeys.CreateParams{Name: "a", Scopes: readFiles, ExpiresAt: clock.Now().Add(30 * day)}
	if _, _, err := s.Create(t.Context(), account, params); err != nil {
		t.Errorf("with the latest expiry: %v", err)
	}
	params.ExpiresAt = params.ExpiresAt.Add(time.Millisecond)
	_, _, err = s.Create(t.Context(), account, params)
	wantExceeded(t, "a millisecond later", err)
	if wrong := s.Validate(params); len(wrong) != 1 {
		t.Errorf("Validate = %v, want one error", wrong)
	}
	asked := false
	params = apikeys.CreateParams{Name: "a", Scopes: readFiles, If: func(_, after apikeys.Key) error {
		asked = after.ExpiresAt.Equal(clock.Now().Add(30 * day))
		return nil
	}}
	if _, _, err := s.Create(t.Context(), account, params); err != nil || !asked {
		t.Errorf("the condition did not see the expiry: %v", err)
	}
	clock.Set(noon.Add(30*day - time.Millisecond))
	if p := accepted(t, s, token.Reveal()); !p.ExpiresAt.Equal(noon.Add(30 * day)) {
		t.Errorf("principal expires at %v", p.ExpiresAt)
	}
	clock.Add(time.Millisecond)
	refused(t, s, token.Reveal())
}

func TestNew_InvalidMaxLifetime_IsRefused(t *testing.T) {
	for _, config := range []apikeys.Config{{MaxLifetime: -1}, {MaxLifetime: time.Microsecond}} {
		if _, err := apikeys.New(memory.New(), config); err == nil {
			t.Errorf("%v is accepted", config.MaxLifetime)
		}
	}
	if _, err := apikeys.New(newSpy(), apikeys.Config{MaxLifetime: day}); err == nil {
		t.Error("a store that cannot list accounts is accepted")
	}
}

// Keys that existed when the limit was introduced end with it, even if their stored expiry is later.
func TestMaxLifetime_OlderKeys_EndWithIt(t *testing.T) {
	for name, test := range map[string]struct {
		from time.Time
		ends time.Time // expected expiry of a key created at noon
	}{
		"at once":     {time.Time{}, noon.Add(30 * day)},
		"in the past": {noon, noon.Add(30 * day)},
		"later":       {noon.Add(40*day + time.Microsecond), noon.Add(40 * day)},
	} {
		store, clock := memory.New(), testclock.At(noon)
		before := newService(t, store, apikeys.Config{Now: clock.Now, Legacy: []apikeys.Legacy{{Kind: "old", Prefix: "old_", MinLength: 20, MaxLength: 20, Alphabet: "x"}}})
		_, never := create(t, before, time.Time{})
		_, late := create(t, before, noon.Add(365*day))
		_, early := create(t, before, noon.Add(10*day))
		config := apikeys.Config{Now: clock.Now, MaxLifetime: 30 * day, MaxLifetimeFrom: test.from, Legacy: []apikeys.Legacy{{Kind: "old", Prefix: "old_", MinLength: 20, MaxLength: 20, Alphabet: "x"}}}
		s := newService(t, store, config)
		if result := s.Import(t.Context(), account, []apikeys.ImportedKey{{Kind: "old", Digest: sum("old_xxxxxxxxxxxxxxxx"), Name: "a", Scopes: readFiles, CreatedAt: noon, ExpiresAt: noon.Add(300 * day)}}); result[0].Err != nil {
			t.Fatal(result[0].Err)
		}
		tokens := map[string]string{"never": never.Reveal(), "late": late.Reveal(), "imported": "old_xxxxxxxxxxxxxxxx"}
		clock.Set(test.ends.Add(-time.Millisecond))
		refused(t, s, early.Reveal())
		for what, token := range tokens {
			if p := accepted(t, s, token); !p.ExpiresAt.Equal(test.ends) {
				t.Errorf("%s, %s: expires at %v, want %v", name, what, p.ExpiresAt, test.ends)
			}
		}
		clock.Add(time.Millisecond)
		for what, token := range tokens {
			refused(t, s, token)
			value, err := s.Lookup(t.Context(), token)
			if err != nil || value.Live || !value.ExpiresAt.Equal(test.ends) || !value.Key.ExpiresAt.Equal(test.ends) {
				t.Errorf("%s, %s: Lookup = %+v, %v", name, what, value, err)
			}
			accepted(t, before, token) // the limit is not stored with the key, so it can be removed again
			if _, err := s.Recheck(t.Context(), auth.Principal{Account: account, KeyID: value.Key.ID}, token); !errors.Is(err, auth.ErrUnauthorized) {
				t.Errorf("%s, %s: Recheck = %v", name, what, err)
			}
		}
		page, err := s.List(t.Context(), account, apikeys.KeyQuery{ExpiresBefore: test.ends.Add(time.Millisecond), Limit: 10})
		if err != nil || len(page.Keys) != 4 {
			t.Errorf("%s: %d keys expire until then, %v; want 4", name, len(page.Keys), err)
		}
	}
}

// Rotating a key does not extend it, but its new value can then be extended.
func TestMaxLifetime_CountsFromIssueOfValue(t *testing.T) {
	clock := testclock.At(noon)
	store := memory.New()
	before := newService(t, store, apikeys.Config{Now: clock.Now})
	key, old := create(t, before, time.Time{})
	s := newService(t, store, apikeys.Config{Now: clock.Now, MaxLifetime: 30 * day})
	set := func(at time.Time) error {
		_, err := s.Update(t.Context(), account, key.ID, apikeys.UpdateParams{ExpiresAt: &at})
		return err
	}
	expires := func(want time.Time) {
		t.Helper()
		if got, err := s.Get(t.Context(), account, key.ID); err != nil || !got.ExpiresAt.Equal(want) {
			t.Errorf("expires at %v, %v; want %v", got.ExpiresAt, err, want)
		}
	}
	clock.Set(noon.Add(20 * day))
	wantExceeded(t, "extended without a rotation", set(noon.Add(30*day+time.Millisecond)))
	rotated, fresh := rotate(t, s, key.ID, 20*day)
	if end := noon.Add(30 * day); !rotated.ExpiresAt.Equal(end) || !rotated.PreviousExpiresAt.Equal(end) {
		t.Errorf("rotated: expires at %v, the previous value at %v; want %v", rotated.ExpiresAt, rotated.PreviousExpiresAt, end)
	}
	wantExceeded(t, "extended too far", set(noon.Add(50*day+time.Millisecond)))
	if err := errors.Join(set(noon.Add(45*day)), set(noon.Add(35*day)), set(time.Time{})); err != nil {
		t.Error(err)
	}
	expires(noon.Add(50 * day))
	clock.Set(noon.Add(30 * day))
	refused(t, s, old.Reveal())
	accepted(t, s, fresh.Reveal())
	clock.Set(noon.Add(50 * day))
	refused(t, s, fresh.Reveal())
	wantExceeded(t, "extended after its end", set(noon.Add(60*day)))
	wantExceeded(t, "extended as far as possible after its end", set(time.Time{}))
	_, fresh = rotate(t, s, key.ID, 0)
	refused(t, s, fresh.Reveal()) // a rotation does not revive the key
	if err := set(noon.Add(80 * day)); err != nil {
		t.Error(err)
	}
	accepted(t, s, fresh.Reveal())
}

// Until MaxLifetimeFrom, the expiry of an old key can be changed to an earlier time, but not to a
// later one.
func TestMaxLifetime_OldKeyBeforeFrom_CanBeShortened(t *testing.T) {
	clock := testclock.At(noon)
	store := memory.New()
	key, _ := create(t, newService(t, store, apikeys.Config{Now: clock.Now}), time.Time{})
	clock.Set(noon.Add(100 * day))
	s := newService(t, store, apikeys.Config{Now: clock.Now, MaxLifetime: 30 * day, MaxLifetimeFrom: noon.Add(140 * day)})
	set := func(at time.Time) error {
		_, err := s.Update(t.Context(), account, key.ID, apikeys.UpdateParams{ExpiresAt: &at})
		return err
	}
	if err := set(noon.Add(120 * day)); err != nil {
		t.Error(err)
	}
	wantExceeded(t, "extended", set(noon.Add(130*day)))
}

// Conditions compare the effective expiry.
func TestMaxLifetime_Conditions_SeeEffectiveExpiry(t *testing.T) {
	clock := testclock.At(noon)
	store := memory.New()
	key, _ := create(t, newService(t, store, apikeys.Config{Now: clock.Now}), time.Time{})
	s := newService(t, store, apikeys.Config{Now: clock.Now, MaxLifetime: 30 * day})
	var extends []bool
	ask := func(before, after apikeys.Key) error {
		if !before.ExpiresAt.Equal(noon.Add(30 * day)) {
			t.Errorf("the key expires at %v", before.ExpiresAt)
		}
		extends = append(extends, apikeys.Extends(before, after))
		return nil
	}
	name, earlier := "b", noon.Add(29*day)
	_, errName := s.Update(t.Context(), account, key.ID, apikeys.UpdateParams{Name: &name, If: ask})
	clock.Add(time.Hour)
	_, _, errRotate := s.Rotate(t.Context(), account, key.ID, apikeys.RotateParams{If: ask})
	_, errLonger := s.Update(t.Context(), account, key.ID, apikeys.UpdateParams{ExpiresAt: new(time.Time), If: ask})
	if err := errors.Join(errName, errRotate, errLonger); err != nil {
		t.Fatal(err)
	}
	_, err := s.Update(t.Context(), account, key.ID, apikeys.UpdateParams{ExpiresAt: &earlier})
	if diff := cmp.Diff([]bool{false, false, true}, extends); diff != "" || err != nil {
		t.Errorf("%v; extends (-want +got):\n%s", err, diff)
	}
}

func TestAllExpiring_MaxLifetime_ListsOldKeysInOrder(t *testing.T) {
	store, clock := memory.New(), testclock.At(noon)
	before := newService(t, store, apikeys.Config{Now: clock.Now})
	names := make(map[string]string)
	add := func(s *apikeys.KeyService, account, name string, life time.Duration) {
		params := apikeys.CreateParams{Name: name, Scopes: readFiles}
		if life > 0 {
			params.ExpiresAt = clock.Now().Add(life)
		}
		key, _, err := s.Create(t.Context(), account, params)
		if err != nil {
			t.Fatal(err)
		}
		names[key.ID] = name
	}
	for i := range 101 { // more than a page of accounts
		add(before, fmt.Sprintf("acct_x%03d", i), "x", 0)
	}
	for range 101 { // more than a page of keys
		add(before, "acct_y", "y", 0)
	}
	clock.Add(day)
	add(before, "acct_2", "never", 0)
	add(before, "acct_1", "late", 365*day)
	add(before, "acct_1", "early", 25*day)
	add(before, "acct_1", "between", 29*day+12*time.Hour)
	clock.Add(time.Hour)
	s := newService(t, store, apikeys.Config{Now: clock.Now, MaxLifetime: 30 * day})
	add(s, "acct_1", "new", 0)
	list := func(from, to time.Time) (got []string) {
		for key, err := range s.AllExpiring(t.Context(), from, to) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprintf("%s %v", names[key.ID], int(key.ExpiresAt.Sub(noon)/time.Hour)))
		}
		return got
	}
	want := []string{"between 732", "late 744", "never 744", "new 745"}
	if diff := cmp.Diff(want, list(noon.Add(30*day+time.Hour), noon.Add(40*day))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := list(time.Time{}, noon.Add(30*day+time.Hour)); len(got) != 203 || got[0] != "early 624" || got[1] != "x 720" {
		t.Errorf("%d keys %q, want 203", len(got), got[:min(3, len(got))])
	}
	n := 0
	for range s.AllExpiring(t.Context(), noon, noon.Add(40*day)) {
		if n++; n == 5 {
			break
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for key, err := range s.AllExpiring(ended, noon, noon.Add(40*day)) {
		if !errors.Is(err, context.Canceled) || key.ID != "" {
			t.Errorf("got %+v, %v", key, err)
		}
	}
}

// Each key that ends because of its lifetime is announced 14 and 3 days before, once each.
func TestMaxLifetime_OldKeys_GetAuditEntries(t *testing.T) {
	store, clock := memory.New(), testclock.At(noon)
	before := newService(t, store, apikeys.Config{Now: clock.Now})
	create(t, before, time.Time{})
	create(t, before, noon.Add(365*day))
	clock.Set(noon.Add(100 * day))
	from := clock.Now().Add(30 * day)
	var services []*apikeys.KeyService
	for range 2 {
		s, err := apikeys.New(store, apikeys.Config{Now: clock.Now, MaxLifetime: 30 * day, MaxLifetimeFrom: from}, driver.WithNotify())
		if err != nil {
			t.Fatal(err)
		}
		services = append(services, s)
	}
	for _, step := range []struct{ days, want int }{{15, 0}, {1, 2}, {10, 0}, {1, 2}, {2, 0}, {100, 0}} {
		clock.Add(time.Duration(step.days) * day)
		had := len(entries(t, store))
		for range 2 {
			for _, s := range services {
				if err := s.AddExpiring(t.Context(), store.AddAuditEntries); err != nil {
					t.Fatal(err)
				}
			}
		}
		all := entries(t, store)
		if got := len(all) - had; got != step.want {
			t.Errorf("at %v: %d entries, want %d", clock.Now(), got, step.want)
		}
		for _, n := range all[:len(all)-had] {
			if n.Action != audit.KeyExpiring || n.Reason != audit.ReasonLifetime || !n.Until.Equal(from) || !n.Pending {
				t.Errorf("entry %+v", n)
			}
		}
	}
}

func entries(t *testing.T, store *memory.Store) []audit.Entry {
	t.Helper()
	page, err := store.ListAuditEntries(t.Context(), account, audit.Query{Actions: []audit.Action{audit.KeyExpiring}, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	return page.Entries
}
