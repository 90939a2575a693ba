package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
)

func TestCreateKey_Limits_AreChecked(t *testing.T) {
	config := newClock().config()
	config.ClientAddress = func(r *http.Request) string { return r.Header.Get("Test-Address") }
	h := serve(t, config)
	admin := h.admin(alice)
	create := func(token, more string) reply {
		t.Helper()
		return h.do("POST", keysPath, token, `{"name":"k","scopes":["files:read"]`+more+`}`, func(r *http.Request) { r.Header.Set("Test-Address", "10.1.2.3") })
	}
	for more, want := range map[string]string{
		`"allowedNetworks":[]`:                                        "allowedNetworks must not be empty",
		`"allowedNetworks":["10.1.2.3/8"]`:                            "allowedNetworks must be IP networks without bits after the prefix: 10.0.0.0/8, not 10.1.2.3/8",
		`"allowedNetworks":["here"]`:                                  "allowedNetworks must be IP networks such as",
		`"allowedNetworks":"10.0.0.0/8"`:                              "allowedNetworks must be",
		`"allowedNetworks":[` + strings.Repeat(`"::",`, 32) + `"::"]`: "allowedNetworks must have at most 32 networks",
		`"rateLimit":0`:                                               "rateLimit must be at least 1",
		`"rateLimit":-1`:                                              "rateLimit must be at least 1",
		`"rateLimit":1000001`:                                         "rateLimit must be at most 1000000",
		`"rateLimit":1e300`:                                           "rateLimit must be",
		`"rateLimit":"5"`:                                             "rateLimit must be",
	} {
		if got := create(admin, ","+more).want(400, "VALIDATION_ERROR"); !strings.Contains(got.body, want) {
			t.Errorf("%.60s: %s, want %s", more, got.body, want)
		}
	}
	create(admin, `,"allowedNetworks":null,"rateLimit":null`).want(201, "")
	limited := create(admin, `,"allowedNetworks":["10.1.0.0/16","2001:db8::1"],"rateLimit":60`).want(201, "")
	shown := h.do("GET", keysPath+"/"+limited.text("id"), admin, "").want(200, "")
	if want := `"allowedNetworks":["10.1.0.0/16","2001:db8::1/128"],"rateLimit":60`; !strings.Contains(shown.body, want) {
		t.Errorf("%s, want %s", shown.body, want)
	}
	token := limited.text("key")
	for more, status := range map[string]int{
		"": 403, `,"allowedNetworks":["10.1.2.0/24"]`: 403, `,"rateLimit":30`: 403, `,"allowedNetworks":["10.0.0.0/8"],"rateLimit":30`: 403,
		`,"allowedNetworks":["10.1.2.0/24"],"rateLimit":61`: 403, `,"allowedNetworks":["10.1.2.0/24"],"rateLimit":60`: 201,
		`,"allowedNetworks":["10.1.0.0/16","2001:db8::1"],"rateLimit":1`: 201, `,"allowedNetworks":["10.1.2.3","10.2.0.0"],"rateLimit":1`: 403,
	} {
		if got := create(token, more); got.status != status {
			t.Errorf("a limited key creates one with %q: %d %s, want %d", more, got.status, got.body, status)
		}
	}
	h.do("POST", keysPath, token, `{"name":"k","scopes":["files:read"]}`).want(401, "UNAUTHORIZED") // from an unknown address
}

// The routes of the API record which scopes a key has used, and refused requests by pattern,
// without the IDs in the path.
func TestAPI_RecordsScopesAndRefusals(t *testing.T) {
	h := serve(t, newClock().config())
	id, token := h.key(alice, scopes.AccountRead, scopes.FilesRead, scopes.FilesWrite, scopes.SecretsRead)
	used := func() string {
		t.Helper()
		key, err := h.api.Keys.Get(t.Context(), alice, id)
		if err != nil {
			t.Fatal(err)
		}
		return usedScopes(&key)
	}
	h.do("GET", keysPath+"/self", token, "").want(200, "")
	h.do("POST", keysPath+"/"+id+"/rotate", token, `{"graceSeconds":3600}`).want(200, "")
	h.do("GET", keysPath+"/"+id, token+"0", "").want(401, "UNAUTHORIZED")
	if got := used(); got != "" {
		t.Errorf("used %q, want none", got)
	}
	h.do("GET", keysPath+"/"+id, token, "").want(200, "")
	if got := used(); got != "account:read" {
		t.Errorf("used %q, want account:read", got)
	}
	admin := h.admin(alice)
	child := h.do("POST", keysPath, admin, `{"name":"child","scopes":["files:read"]}`).want(201, "")
	h.do("GET", "/v2/notifications/events?type=files.expiring", child.text("key"), "").want(200, "")
	h.do("GET", keysPath+"/"+child.text("id"), child.text("key"), "").want(403, "FORBIDDEN")
	h.do("POST", keysPath, child.text("key"), `{"name":"c","scopes":["files:read","secrets:read"]}`).want(403, "FORBIDDEN")
	h.do("GET", "/v2/secret", child.text("key"), "").want(404, "NOT_FOUND")
	got := h.do("GET", keysPath+"/"+child.text("id")+"/refusals", admin, "").want(200, "")
	for _, want := range []string{
		`{"at":"2026-01-31T12:00:00.000Z","outcome":"scope_missing","route":"GET /v2/api-keys/{id}","missing":"account:read","network":"127.0.0.0/24"}`,
		`{"at":"2026-01-31T12:00:00.000Z","outcome":"scope_missing","route":"POST /v2/api-keys","missing":"secrets:read","network":"127.0.0.0/24"}`,
	} {
		if !strings.Contains(got.body, want) || strings.Count(got.body, `"at"`) != 2 {
			t.Errorf("%s, want %s", got.body, want)
		}
	}
	view := h.do("GET", keysPath+"/"+child.text("id"), admin, "").want(200, "")
	if want := `"lastUsedFrom":"127.0.0.0/24","scopesUsed":[{"scope":"files:read","lastUsedOn":"2026-01-31"}],"networksUsed":[{"network":"127.0.0.0/24","lastUsedOn":"2026-01-31"}]`; !strings.Contains(view.body, want) {
		t.Errorf("%s, want %s", view.body, want)
	}
	h.do("GET", keysPath+"/"+child.text("id")+"/refusals", h.admin(bob), "").want(404, "NOT_FOUND")
	unused := h.do("GET", keysPath+"/"+id+"/refusals", admin, "").want(200, "")
	if diff := cmp.Diff(`{"data":[]}`, unused.body); diff != "" {
		t.Error(diff)
	}
}

func usedScopes(key *apikeys.Key) string {
	var names []string
	for _, use := range key.ScopesUsed() {
		names = append(names, fmt.Sprint(use.Scope))
	}
	return strings.Join(names, " ")
}
