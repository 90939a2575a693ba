package auth_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
)

// resourcesOf returns the Resources with these names, or the zero Resources if there are none.
func resourcesOf(t testing.TB, names ...string) auth.Resources {
	t.Helper()
	r, err := auth.ParseResources(names)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestParseResources_NamesInAnyOrder_AreSortedAndDeduplicated(t *testing.T) {
	got := resourcesOf(t, "b", "a", `~"\`, "b", "!", strings.Repeat("x", 128)).Names()
	if diff := cmp.Diff([]string{"!", "a", "b", strings.Repeat("x", 128), `~"\`}, got); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if none := resourcesOf(t); !none.IsZero() || none.Names() != nil {
		t.Errorf("no names: got %q, want no limit", none)
	}
}

func TestParseResources_InvalidNames_AreRefused(t *testing.T) {
	many := make([]string, 65)
	for i := range many {
		many[i] = fmt.Sprint("r", i)
	}
	for _, names := range [][]string{{}, {""}, {"a", ""}, {"a b"}, {"a\tb"}, {"é"}, {"a\x7f"}, {"a\x00"}, {strings.Repeat("x", 129)}, many} {
		if r, err := auth.ParseResources(names); err == nil {
			t.Errorf("%.40q: got %v, want an error", names, r)
		}
	}
	resourcesOf(t, many[:64]...)
}

func TestResources_AllowsAndCovers(t *testing.T) {
	none, a, b, ab := resourcesOf(t), resourcesOf(t, "a"), resourcesOf(t, "b"), resourcesOf(t, "a", "b")
	for _, test := range []struct {
		r      auth.Resources
		allows []string // of "", "a", "b", "A", "a b"
		covers []auth.Resources
	}{
		{none, []string{"", "a", "b", "A", "a b"}, []auth.Resources{none, a, b, ab}},
		{a, []string{"a"}, []auth.Resources{a}},
		{b, []string{"b"}, []auth.Resources{b}},
		{ab, []string{"a", "b"}, []auth.Resources{a, b, ab}},
	} {
		for _, name := range []string{"", "a", "b", "A", "a b"} {
			if got, want := test.r.Allows(name), slices.Contains(test.allows, name); got != want {
				t.Errorf("%q allows %q: %v, want %v", test.r, name, got, want)
			}
		}
		for _, other := range []auth.Resources{none, a, b, ab} {
			if got, want := test.r.Covers(other), slices.Contains(test.covers, other); got != want {
				t.Errorf("%q covers %q: %v, want %v", test.r, other, got, want)
			}
		}
	}
}

// A route that names no resource must refuse each limited key, with every way to guard it.
func TestRequire_LimitedKey_PassesOnlyWithItsResource(t *testing.T) {
	limited := auth.Principal{Account: "acct_1", KeyID: "key_limited", Scopes: scopes.Of(scopes.FilesRead), LimitedTo: resourcesOf(t, "b1", `"\`)}
	a, err := auth.New(keys{"limited": limited, "reader": reader}, auth.Config{})
	if err != nil {
		t.Fatal(err)
	}
	named := func(name string) auth.RouteOption {
		return auth.Resource(func(r *http.Request) string {
			if p, ok := auth.PrincipalFrom(r.Context()); !ok || p.KeyID != limited.KeyID {
				t.Errorf("the route's function was called for %v", p)
			}
			return name
		})
	}
	const forbidden = `{"error":{"code":"FORBIDDEN","message":`
	nowhere := forbidden + `"This API key is limited to resources, and the request is not limited to any of them."}}`
	for _, test := range []struct {
		name      string
		options   []auth.RouteOption
		body      string // empty means that the request passes
		challenge string
	}{
		{"own", []auth.RouteOption{named("b1")}, "", ""},
		{"own, quoted", []auth.RouteOption{named(`"\`)}, "", ""},
		{"any", []auth.RouteOption{auth.AnyResource()}, "", ""},
		{"no option", nil, nowhere, ""},
		{"other option", []auth.RouteOption{auth.OutlivesKey()}, nowhere, ""},
		{"empty", []auth.RouteOption{named("")}, nowhere, ""},
		{"invalid", []auth.RouteOption{named("b1 b2\r\n")}, nowhere, ""},
		{"other", []auth.RouteOption{named("b")}, forbidden + `"This API key is limited to resources that do not include b.","requiredResources":["b"]}}`, `resource="b"`},
		{"other, quoted", []auth.RouteOption{named(`\"`)}, forbidden + `"This API key is limited to resources that do not include \\\".","requiredResources":["\\\""]}}`, `resource="\\\""`},
	} {
		guards := map[string]http.Handler{
			"Require": a.Require(scopes.FilesRead, principal, test.options...),
			"Handler": a.Handler(principal, test.options...),
		}
		for guard, handler := range guards {
			response, body := serve(t, handler, request("limited"))
			switch {
			case test.body == "" && (response.StatusCode != 200 || body != "acct_1 key_limited"):
				t.Errorf("%s, %s: got %d %s, want 200", guard, test.name, response.StatusCode, body)
			case test.body != "" && (response.StatusCode != 403 || body != test.body):
				t.Errorf("%s, %s: got %d %s, want 403 %s", guard, test.name, response.StatusCode, body, test.body)
			}
			want := ""
			if test.challenge != "" {
				want = `ApiKey realm="storageapi", error="insufficient_scope", ` + test.challenge
			}
			if got := response.Header.Get("WWW-Authenticate"); got != want {
				t.Errorf("%s, %s: WWW-Authenticate is %q, want %q", guard, test.name, got, want)
			}
			if response, _ := serve(t, handler, request("reader")); response.StatusCode != 200 {
				t.Errorf("%s, %s: got %d for a key without a limit, want 200", guard, test.name, response.StatusCode)
			}
		}
		if response, _ := serve(t, a.Require(scopes.FilesWrite, unreachable(t), test.options...), request("limited")); response.StatusCode != 403 {
			t.Errorf("%s: got %d without the scope, want 403", test.name, response.StatusCode)
		}
	}
}

// In a chain of keys, each created by the previous key, no key may have authority that the first
// key lacks.
func TestCanManage_RandomChains_NeverExceedTheFirstKey(t *testing.T) {
	const chains, length = 1_000_000, 2
	random := rand.New(rand.NewPCG(31, 1))
	names := []string{"a", "b", "c", "d"}
	var sets []auth.Resources // every subset of names; the empty one is no limit
	var members []scopes.Set
	for bits := range 1 << len(names) {
		var some []string
		var set scopes.Set
		for i, name := range names {
			if bits&(1<<i) != 0 {
				some = append(some, name)
				set = set.With([]scopes.Scope{scopes.FilesRead, scopes.FilesWrite, scopes.SecretsRead, scopes.AccountRead}[i])
			}
		}
		sets = append(sets, resourcesOf(t, some...))
		members = append(members, set)
	}
	everyName := append(names, "")
	start := time.Unix(1_800_000_000, 0)
	target := func() auth.Target {
		key := auth.Target{Scopes: members[random.IntN(len(members))], Resources: sets[random.IntN(len(sets))]}
		if random.IntN(4) > 0 {
			key.ExpiresAt = start.Add(time.Duration(random.IntN(8)) * time.Hour)
		}
		return key
	}
	created, limited := 0, 0
	for range chains {
		first := target()
		caller := auth.Principal{KeyID: "key_0", Scopes: first.Scopes, ExpiresAt: first.ExpiresAt, LimitedTo: first.Resources}
		for range length {
			key := target()
			if random.IntN(2) == 0 { // a random key is rarely allowed, so start from the caller's own
				key.Scopes, key.ExpiresAt = caller.Scopes, caller.ExpiresAt
			}
			if !caller.CanManage(key) {
				continue
			}
			created++
			caller = auth.Principal{KeyID: "key_1", Scopes: key.Scopes, ExpiresAt: key.ExpiresAt, LimitedTo: key.Resources}
			for _, name := range everyName {
				if caller.Allows(name) && !first.Resources.Allows(name) {
					t.Fatalf("a key limited to %q has a descendant that may access %q", first.Resources, name)
				}
			}
			lasts := first.ExpiresAt.IsZero() || !caller.ExpiresAt.IsZero() && !caller.ExpiresAt.After(first.ExpiresAt)
			if !first.Scopes.Covers(caller.Scopes) || !lasts {
				t.Fatalf("key %v has a descendant %v", first, caller)
			}
			if !caller.LimitedTo.IsZero() {
				limited++
			}
		}
	}
	if created < chains/4 || limited < chains/4 {
		t.Errorf("the test is too weak: %d keys created, %d of them limited", created, limited)
	}
}
