package apikeys_test

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/driver"
)

// activityOf formats the activity in Get's result as text, for comparisons.
func activityOf(t *testing.T, s *apikeys.KeyService, id string) string {
	t.Helper()
	key, err := s.Get(t.Context(), account, id)
	if err != nil {
		t.Fatal(err)
	}
	text := "last " + key.LastUsedFrom().String()
	for _, use := range key.NetworksUsed() {
		text += fmt.Sprintf(", %s on %s", use.Network, use.LastUsedOn.Format("01-02"))
	}
	for _, use := range key.ScopesUsed() {
		text += fmt.Sprintf(", %s on %s", use.Scope, use.LastUsedOn.Format("01-02"))
	}
	return text
}

func TestActivity_TwoNodes_IsMerged(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		store := newSpy()
		one, other := newService(t, store, apikeys.Config{}), newService(t, store, apikeys.Config{})
		key, token, err := one.Create(t.Context(), account, apikeys.CreateParams{Name: "k", Scopes: scopes.Of(scopes.SecretsRead, scopes.FilesRead, scopes.AccountRead)})
		if err != nil {
			t.Fatal(err)
		}
		use := func(s *apikeys.KeyService, address string, scope scopes.Scope) {
			t.Helper()
			time.Sleep(time.Second)
			p, err := s.VerifyFrom(t.Context(), token.Reveal(), address)
			if err != nil {
				t.Fatal(err)
			}
			s.RecordScopes(&p, scopes.Of(scope))
		}
		use(one, "192.0.2.1", scopes.FilesRead)
		use(other, "2001:db8:1:2::3", scopes.AccountRead)
		use(one, "", scopes.SecretsWrite) // not held, from an unknown address
		want := "last 192.0.2.0/24, 192.0.2.0/24 on 01-01, files:read on 01-01"
		if got := activityOf(t, one, key.ID); got != want {
			t.Errorf("before the write: %s, want %s", got, want)
		}
		time.Sleep(2 * time.Minute)
		want = "last 2001:db8:1::/48, 2001:db8:1::/48 on 01-01, 192.0.2.0/24 on 01-01, account:read on 01-01, files:read on 01-01"
		if got := activityOf(t, one, key.ID); got != want && got != "last 192.0.2.0/24, 192.0.2.0/24 on 01-01, 2001:db8:1::/48 on 01-01, account:read on 01-01, files:read on 01-01" {
			t.Errorf("after the write: %s, want %s", got, want)
		}
		time.Sleep(24 * time.Hour)
		use(one, "192.0.2.200", scopes.SecretsRead)
		rotate(t, one, key.ID, time.Hour)
		use(other, "::ffff:192.0.2.1", scopes.AccountRead)
		time.Sleep(2 * time.Minute)
		want = "last 192.0.2.0/24, 192.0.2.0/24 on 01-02, 2001:db8:1::/48 on 01-01, account:read on 01-02, files:read on 01-01, secrets:read on 01-02"
		if got := activityOf(t, other, key.ID); got != want {
			t.Errorf("a day later: %s, want %s", got, want)
		}
	})
}

// A clock that is set back changes no recorded time.
func TestActivity_ClockSetBack_KeepsLatest(t *testing.T) {
	now := noon
	service := newService(t, newSpy(), apikeys.Config{Now: func() time.Time { return now }})
	key, token := create(t, service, time.Time{})
	use := func() {
		t.Helper()
		p, err := service.VerifyFrom(t.Context(), token.Reveal(), "192.0.2.1")
		if err != nil {
			t.Fatal(err)
		}
		service.RecordScopes(&p, readFiles)
		if err := service.WriteUses(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	use()
	want := activityOf(t, service, key.ID)
	now = noon.Add(-1000 * time.Hour)
	use()
	now = time.Unix(-5, 0)
	use()
	if got := activityOf(t, service, key.ID); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestRefusals_AreWrittenAndShown(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		store := newSpy()
		service := newService(t, store, apikeys.Config{})
		key, _ := create(t, service, time.Time{})
		var want []auth.RefusedRequest
		for i := range 3 {
			time.Sleep(90 * time.Second) // so that some refusals are written before others are recorded
			refusal := auth.RefusedRequest{Outcome: observe.ScopeMissing, Route: fmt.Sprint("GET /", i), Missing: "files:read"}
			service.RecordRefusal(account, key.ID, "192.0.2.9", refusal)
			refusal.At, refusal.Network = time.Now().UTC(), driver.NetworkOf(auth.ParseAddress("192.0.2.9"))
			want = append([]auth.RefusedRequest{refusal}, want...)
			if got, err := service.Refusals(t.Context(), account, key.ID); err != nil || !cmp.Equal(want, got, cmp.Comparer(equalPrefix)) {
				t.Errorf("Refusals: %v, %v, want %v", got, err, want)
			}
		}
		if err := service.Delete(t.Context(), account, key.ID, apikeys.DeleteParams{}); err != nil {
			t.Fatal(err)
		}
		if _, err := service.Refusals(t.Context(), account, key.ID); !errors.Is(err, apierr.ErrNotFound) {
			t.Errorf("Refusals of a deleted key: %v", err)
		}
		time.Sleep(2 * time.Minute)
		if got := len(store.recorded()); got != 3 {
			t.Errorf("%d writes, want 3", got)
		}
	})
}

func equalPrefix(a, b interface{ String() string }) bool { return a.String() == b.String() }

// While the store fails and 10,000 keys are refused again and again, memory is bounded, and then
// each key is written once.
func TestRefusals_Flood_IsBounded(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		store := newSpy()
		store.fail(errors.New("disk full"))
		service := newService(t, store, apikeys.Config{})
		flood := func(each int) {
			for i := range 10_000 {
				for j := range each {
					service.RecordRefusal(account, fmt.Sprint("key_", i), "192.0.2.9", auth.RefusedRequest{Outcome: observe.Limited, Route: fmt.Sprint("GET /", j)})
				}
			}
		}
		flood(10)
		time.Sleep(61 * time.Second)
		flood(10)
		store.fail(nil)
		time.Sleep(10 * time.Minute)
		keys, refusals := 0, 0
		for _, step := range store.recorded() {
			for _, use := range step {
				keys++
				refusals += len((&driver.Key{Activity: use.Activity}).Refusals())
			}
		}
		if keys > 10_000 || refusals != 1<<16 {
			t.Errorf("%d keys with %d refusals were written, want at most 10000 with 65536", keys, refusals)
		}
	})
}

// While the store fails, each failed write makes its refusals pending again. They must not
// accumulate: at most 65,536 remain pending.
func TestRefusals_StoreKeepsFailing_AreBounded(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		store := newSpy()
		store.fail(errors.New("disk full"))
		service := newService(t, store, apikeys.Config{Logger: slog.New(slog.DiscardHandler)})
		var ids, routes []string
		for i := range 700 {
			ids, routes = append(ids, fmt.Sprint("key_", i)), append(routes, fmt.Sprint("GET /", i))
		}
		for range 10 {
			for _, id := range ids {
				for _, route := range routes[:20] {
					service.RecordRefusal(account, id, "192.0.2.9", auth.RefusedRequest{Outcome: observe.Limited, Route: route})
				}
			}
			time.Sleep(time.Minute)
		}
		store.fail(nil)
		time.Sleep(10 * time.Minute)
		refusals := 0
		for _, step := range store.recorded() {
			for _, use := range step {
				refusals += len((&driver.Key{Activity: use.Activity}).Refusals())
			}
		}
		if refusals > 1<<16 || refusals < 1<<15 {
			t.Errorf("%d refusals were written, want most of 65536", refusals)
		}
	})
}

func TestCreate_InvalidLimits_NamesField(t *testing.T) {
	service := newService(t, newSpy(), apikeys.Config{})
	for field, params := range map[string]apikeys.CreateParams{
		"allowedNetworks": {AllowedNetworks: []string{"192.0.2.1/24"}},
		"rateLimit":       {RateLimit: 1_000_001},
	} {
		params.Name, params.Scopes = "k", readFiles
		_, _, err := service.Create(t.Context(), account, params)
		if rule, ok := errors.AsType[*apierr.ValidationError](err); !ok || rule.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}
