package auth_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/memory"
)

// newKeys returns a KeyService, and a function that creates a key and returns its value.
func newKeys(t *testing.T) (*apikeys.KeyService, func(apikeys.CreateParams) (apikeys.Key, string)) {
	t.Helper()
	keys, err := apikeys.New(memory.New(), apikeys.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(keys.Close)
	return keys, func(params apikeys.CreateParams) (apikeys.Key, string) {
		t.Helper()
		params.Name, params.Scopes = "k", scopes.Of(scopes.FilesRead, scopes.FilesWrite)
		key, token, err := keys.Create(t.Context(), "acct_1", params)
		if err != nil {
			t.Fatal(err)
		}
		return key, token.Reveal()
	}
}

func from(address, value string) *http.Request {
	r := request(value)
	r.RemoteAddr = address
	return r
}

func TestRequire_OtherNetwork_IsAnsweredLikeUnknownKey(t *testing.T) {
	keys, create := newKeys(t)
	key, value := create(apikeys.CreateParams{AllowedNetworks: []string{"192.0.2.0/24", "2001:db8::/32"}})
	var outcomes []observe.Outcome
	guard, err := auth.New(keys, auth.Config{Observe: observe.Observer{Authenticated: func(_ context.Context, a observe.Authentication) {
		outcomes = append(outcomes, a.Outcome)
		if a.Outcome == observe.WrongNetwork && a.KeyID != key.ID {
			t.Errorf("observed key %q, want %q", a.KeyID, key.ID)
		}
	}}})
	if err != nil {
		t.Fatal(err)
	}
	defer guard.Close()
	handler := guard.Require(scopes.FilesRead, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	dump := func(r *http.Request) string {
		response, body := serve(t, handler, r)
		return fmt.Sprint(response.Status, response.Header, body)
	}
	unknown := dump(from("192.0.2.1:1", value[:len(value)-38]+strings.Repeat("0", 32)+"000000"))
	spoofed := from("198.51.100.1:1", value)
	spoofed.Header.Set("X-Forwarded-For", "192.0.2.1")
	spoofed.Header.Set("Forwarded", "for=192.0.2.1")
	for _, r := range []*http.Request{from("198.51.100.1:1", value), from("@", value), from("", value), from("192.0.2.1", value), from("[2001:db9::1]:1", value), spoofed} {
		if got := dump(r); got != unknown {
			t.Errorf("from %q: %s, want %s", r.RemoteAddr, got, unknown)
		}
	}
	if used, _ := keys.Get(t.Context(), "acct_1", key.ID); !used.LastUsedAt.IsZero() || used.LastUsedFrom().IsValid() {
		t.Errorf("refused requests count as a use at %v from %v", used.LastUsedAt, used.LastUsedFrom())
	}
	for _, address := range []string{"192.0.2.1:1", "[::ffff:192.0.2.1]:1", "[2001:db8::1]:1", "[2001:db8::1%eth0]:1"} {
		if response, body := serve(t, handler, from(address, value)); response.StatusCode != 200 {
			t.Errorf("from %q: %s %s", address, response.Status, body)
		}
	}
	want := []observe.Outcome{observe.Malformed}
	for range 6 {
		want = append(want, observe.WrongNetwork)
	}
	want = append(want, observe.OK, observe.OK, observe.OK, observe.OK)
	if diff := cmp.Diff(want, outcomes); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	used, _ := keys.Get(t.Context(), "acct_1", key.ID)
	if got := used.LastUsedFrom().String(); got != "2001:db8::/48" {
		t.Errorf("last used from %s", got)
	}
	if _, err := keys.Verify(t.Context(), value); err == nil {
		t.Error("Verify accepts a limited key without an address")
	}
}

// Config.ClientAddress determines the address, also when the key of a running request is verified
// again.
func TestRequire_ClientAddress_DecidesNetwork(t *testing.T) {
	keys, create := newKeys(t)
	_, value := create(apikeys.CreateParams{AllowedNetworks: []string{"192.0.2.0/24"}})
	guard, err := auth.New(keys, auth.Config{ClientAddress: func(r *http.Request) string { return r.Header.Get("X-Real-Ip") }})
	if err != nil {
		t.Fatal(err)
	}
	defer guard.Close()
	handler := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("X-Real-Ip")
		if _, err := auth.Recheck(r.Context()); err != nil {
			t.Errorf("Recheck: %v", err)
		}
	}))
	for address, status := range map[string]int{"192.0.2.1": 200, "198.51.100.1": 401, "": 401, "nonsense": 401} {
		r := from("192.0.2.1:1", value)
		r.Header.Set("X-Real-Ip", address)
		if response, _ := serve(t, handler, r); response.StatusCode != status {
			t.Errorf("%q: %s, want %d", address, response.Status, status)
		}
	}
}

// If a key is turned off during a request, the recheck must refuse the request and record the
// refusal.
func TestRecheck_KeyTurnedOff_RefusalIsRecorded(t *testing.T) {
	keys, create := newKeys(t)
	key, value := create(apikeys.CreateParams{})
	guard, err := auth.New(keys, auth.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer guard.Close()
	handler := guard.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		off := false
		if _, err := keys.Update(r.Context(), "acct_1", key.ID, apikeys.UpdateParams{Enabled: &off}); err != nil {
			t.Error(err)
		}
		if _, err := auth.Recheck(r.Context()); !errors.Is(err, auth.ErrUnauthorized) {
			t.Errorf("Recheck = %v, want %v", err, auth.ErrUnauthorized)
		}
	}))
	serve(t, handler, from("192.0.2.1:1", value))
	refusals, err := keys.Refusals(t.Context(), "acct_1", key.ID)
	if err != nil || len(refusals) != 1 || refusals[0].Outcome != observe.Disabled || refusals[0].Route != "GET" || refusals[0].Network.String() != "192.0.2.0/24" {
		t.Errorf("refusals = %+v, %v; want one, because the key is disabled", refusals, err)
	}
}

func TestRequire_KeyRateLimit_IsTheLowerOne(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	keys, create := newKeys(t)
	_, slow := create(apikeys.CreateParams{RateLimit: 3})
	_, fast := create(apikeys.CreateParams{RateLimit: 1_000_000})
	_, plain := create(apikeys.CreateParams{})
	for name, test := range map[string]struct {
		host     auth.RateLimit
		admitted map[string]int
	}{
		"host limited":   {auth.RateLimit{PerSecond: 5, PerAccount: -1}, map[string]int{slow: 3, fast: 5, plain: 5}},
		"host unlimited": {auth.RateLimit{}, map[string]int{slow: 3, fast: 20, plain: 20}},
	} {
		guard, err := auth.New(keys, auth.Config{RateLimit: test.host, Now: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		handler := guard.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		for value, want := range test.admitted {
			admitted := 0
			for range 20 {
				if response, _ := serve(t, handler, request(value)); response.StatusCode == 200 {
					admitted++
				}
			}
			if admitted != want {
				t.Errorf("%s: %d of 20 requests admitted, want %d", name, admitted, want)
			}
		}
		now = now.Add(20 * time.Second) // the slow key's limit returns one token
		for _, want := range []int{200, 429} {
			if response, _ := serve(t, handler, request(slow)); response.StatusCode != want {
				t.Errorf("%s, 20 s later: %s, want %d", name, response.Status, want)
			}
		}
		guard.Close()
	}
}

// Refused requests are recorded with their route's pattern, never with a path or method that could
// contain a secret.
func TestRefusals_NameRouteAndReason(t *testing.T) {
	keys, create := newKeys(t)
	key, value := create(apikeys.CreateParams{RateLimit: 6})
	guard, err := auth.New(keys, auth.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer guard.Close()
	noop := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	mux := http.NewServeMux()
	mux.Handle("GET /files/{name}", guard.Require(scopes.AccountRead, noop))
	mux.Handle("GET /buckets/{name}", guard.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { auth.NoteForbidden(r.Context(), r.PathValue("name")) })))
	mux.Handle("/own/", guard.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { auth.NoteForbidden(r.Context(), "bucket_1") })))
	send := func(handler http.Handler, method, path string) {
		r := httptest.NewRequest(method, path, nil)
		r.RemoteAddr = "192.0.2.77:1"
		r.Header.Set("Api-Key", value)
		handler.ServeHTTP(httptest.NewRecorder(), r)
	}
	send(mux, "GET", "/files/secret?token=secret")
	send(mux, "SECRET", "/own/secret")
	send(mux, "POST", "/own/secret")
	send(mux, "GET", "/buckets/"+value) // the path contains the key, which is not a valid resource name
	send(guard.Require(scopes.SecretsRead, noop), "DELETE", "/secret")
	send(guard.Handler(noop), "GET", "/") // accepted
	send(mux, "GET", "/files/secret")     // too many
	got, err := keys.Refusals(t.Context(), "acct_1", key.ID)
	var list []string
	for _, r := range got {
		list = append(list, fmt.Sprintf("%s %s (%s) %s", r.Outcome, r.Route, r.Missing, r.Network))
	}
	want := []string{
		"limited GET /files/{name} () 192.0.2.0/24",
		"scope_missing DELETE (secrets:read) 192.0.2.0/24",
		"scope_missing GET /buckets/{name} () 192.0.2.0/24",
		"scope_missing POST /own/ (bucket_1) 192.0.2.0/24",
		"scope_missing OTHER /own/ (bucket_1) 192.0.2.0/24",
		"scope_missing GET /files/{name} (account:read) 192.0.2.0/24",
	}
	if diff := cmp.Diff(want, list, cmpopts.SortSlices(strings.Compare)); err != nil || diff != "" { // several may have the same millisecond
		t.Errorf("%v, (-want +got):\n%s", err, diff)
	}
}

func TestScopesUsed_AreThoseThatRoutesRequired(t *testing.T) {
	keys, create := newKeys(t)
	key, value := create(apikeys.CreateParams{})
	guard, err := auth.New(keys, auth.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer guard.Close()
	noop := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	used := func() (names []string) {
		key, err := keys.Get(t.Context(), "acct_1", key.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, use := range key.ScopesUsed() {
			names = append(names, use.Scope.String())
		}
		return names
	}
	serve(t, guard.Handler(noop), request(value))
	serve(t, guard.Require(scopes.SecretsRead, noop), request(value))
	if got := used(); got != nil {
		t.Errorf("used %q before any scope was used", got)
	}
	serve(t, guard.Require(scopes.FilesWrite, noop), request(value))
	if diff := cmp.Diff([]string{"files:write"}, used()); diff != "" {
		t.Error(diff)
	}
	serve(t, guard.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		auth.NoteScopes(r.Context(), scopes.Of(scopes.FilesRead, scopes.SecretsWrite))
	})), request(value))
	if diff := cmp.Diff([]string{"files:read", "files:write"}, used()); diff != "" {
		t.Error(diff)
	}
}
