package httpapi_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

const (
	teamsRead  scopes.Scope = "teams:read"
	teamsWrite scopes.Scope = "teams:write"
)

var (
	readTeams  = scopes.Declaration{Scope: teamsRead, Description: "List teams"}
	writeTeams = scopes.Declaration{Scope: teamsWrite, Description: "Change teams"}
)

// serveTeams returns a host with a file as its store and a route of its own that requires
// teams:read.
func serveTeams(t *testing.T, path string, declared ...scopes.Declaration) (h *host, end func()) {
	t.Helper()
	api, err := storageapi.NewHandler(storageapi.Config{Path: path, Scopes: declared})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/v2/", api)
	if len(declared) > 0 {
		mux.Handle("GET /v2/teams", api.Auth.Require(teamsRead, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			_, _ = w.Write([]byte("[]\n"))
		})))
	}
	return mount(t, api, mux), func() {
		if err := api.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestOwnScopes declares a scope, withdraws it, and declares it again at another position in the
// list.
func TestOwnScopes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	h, end := serveTeams(t, path, readTeams, writeTeams)
	_, all := h.key(alice, append(allScopes(), teamsRead, teamsWrite)...)
	_, specified := h.key(alice, allScopes()...)

	body := `{"name":"a","scopes":["teams:write","files:read","teams:read"]}`
	h.do("POST", keysPath, specified, body).want(403, auth.CodeForbidden)
	created := h.do("POST", keysPath, all, body).want(201, "").object()
	id, token := created["id"].(string), created["key"].(string)
	if diff := cmp.Diff([]any{"teams:write", "files:read", "teams:read"}, created["scopes"]); diff != "" {
		t.Errorf("scopes (-want +got):\n%s", diff)
	}
	refused := h.do("POST", keysPath, all, `{"name":"a","scopes":["teams:delete"]}`).want(400, auth.CodeValidation).message()
	if !strings.Contains(refused, "account:read, teams:read, teams:write; unknown scope \"teams:delete\"") {
		t.Errorf("the refusal says %s", refused)
	}
	h.do("GET", "/v2/teams", token, "").want(200, "")
	h.do("GET", "/v2/teams", specified, "").want(403, auth.CodeForbidden)
	h.do("POST", keysPath+"/"+id+"/rotate", specified, "").want(403, auth.CodeForbidden)
	end()

	// Without declarations, only the scopes in docs/spec.md exist. The key keeps its own scope, but
	// gains nothing from it.
	h, end = serveTeams(t, path)
	shown := h.do("GET", keysPath+"/"+id, all, "").want(200, "").object()
	if diff := cmp.Diff([]any{"files:read"}, shown["scopes"]); diff != "" {
		t.Errorf("scopes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]any{"teams:write", "teams:read"}, shown["unknownScopes"]); diff != "" {
		t.Errorf("unknownScopes (-want +got):\n%s", diff)
	}
	if p, err := h.api.Keys.Verify(t.Context(), token); err != nil || p.Scopes.Has(teamsRead) || !p.Scopes.Has(scopes.FilesRead) {
		t.Errorf("the principal is %v, %v", p, err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a scope that is not declared is required")
			}
		}()
		h.api.Auth.Require(teamsRead, http.NotFoundHandler())
	}()
	for action, do := range map[string]func() reply{
		"rotate": func() reply { return h.do("POST", keysPath+"/"+id+"/rotate", specified, "") },
		"rename": func() reply { return h.do("PATCH", keysPath+"/"+id, specified, `{"name":"b"}`) },
		"delete": func() reply { return h.do("DELETE", keysPath+"/"+id, specified, "") },
	} {
		if got := do(); got.status != 403 {
			t.Errorf("%s by who lacks what is unknown: %d %s", action, got.status, got.body)
		}
	}
	h.do("POST", keysPath, all, body).want(400, auth.CodeValidation)
	if _, _, err := h.api.Keys.Create(t.Context(), alice, apikeys.CreateParams{Name: "a", Scopes: scopes.Of(teamsRead)}); err == nil {
		t.Error("Go creates a key with a scope that is not declared")
	}
	h.do("PATCH", keysPath+"/"+id, token, `{"name":"renamed by itself"}`).want(200, "")
	rotated := h.do("POST", keysPath+"/"+id+"/rotate", token, `{"graceSeconds":0}`).want(200, "").object()
	token = rotated["key"].(string)
	end()

	h, end = serveTeams(t, path, writeTeams, scopes.Declaration{Scope: "zoos:read", Description: "List zoos"}, readTeams)
	shown = h.do("GET", keysPath+"/"+id, all, "").want(200, "").object()
	if diff := cmp.Diff([]any{"teams:write", "files:read", "teams:read"}, shown["scopes"]); diff != "" {
		t.Errorf("scopes (-want +got):\n%s", diff)
	}
	if _, found := shown["unknownScopes"]; found {
		t.Error("unknownScopes is there though all are known")
	}
	h.do("GET", "/v2/teams", token, "").want(200, "")
	end()
}

func TestNewHandler_ScopesDeclaredTwice_AreRejected(t *testing.T) {
	config := storageapi.Config{Path: filepath.Join(t.TempDir(), "storage.db"), Scopes: []scopes.Declaration{readTeams, readTeams}}
	const want = `Config.Scopes: scopes: declaration 1, "teams:read": Scope must be declared once`
	if _, err := storageapi.NewHandler(config); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestHideScopes hides scopes that a key already holds. The key must keep working, but no new key
// may have these scopes.
func TestHideScopes(t *testing.T) {
	config := storageapi.Config{Path: filepath.Join(t.TempDir(), "storage.db")}
	before := newAPI(t, config)
	_, token := (&host{t, before, ""}).key(alice, allScopes()...)
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	config.HideScopes = []scopes.Scope{scopes.AggregatorsRead, scopes.AggregatorsWrite, scopes.FilesRead}
	api := newAPI(t, config)
	mux := http.NewServeMux()
	mux.Handle("/v2/", api)
	mux.Handle("GET /v2/aggregators", api.Auth.Require(scopes.AggregatorsRead, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})))
	h := mount(t, api, mux)

	h.do("GET", "/v2/aggregators", token, "").want(204, "")
	if shown := h.do("GET", keysPath+"/self", token, "").want(200, "").body; !strings.Contains(shown, `"aggregators:read"`) {
		t.Errorf("the key has lost a scope: %s", shown)
	}
	refused := h.do("POST", keysPath, token, `{"name":"a","scopes":["account:read","aggregators:read"]}`).want(400, auth.CodeValidation).message()
	want := `scopes must be one or more of environments:read, environments:write, files:write, members:read, members:write, publishers:read, publishers:write, ` +
		`secrets:read, secrets:write, account:read; unknown scope "aggregators:read".`
	if refused != want {
		t.Errorf("got  %s\nwant %s", refused, want)
	}
	_, _, err := api.Keys.Create(t.Context(), alice, apikeys.CreateParams{Name: "a", Scopes: scopes.Specified()})
	if err == nil || !strings.Contains(err.Error(), "files:read is hidden by Config.HideScopes") {
		t.Errorf("Create in Go: got %v", err)
	}
	h.do("POST", keysPath, token, `{"name":"a","scopes":["account:read"]}`).want(201, "")
	refused = h.do("POST", webhooksPath, token, `{"url":"https://example.com","events":["files.expiring"]}`).want(400, auth.CodeValidation).message()
	if !strings.HasPrefix(refused, "events must be one or more of balance.low, ") {
		t.Errorf("subscribing to a type that needs a hidden scope: %s", refused)
	}
	_, restricted := h.key(alice, scopes.SecretsRead)
	if refused = h.do("POST", webhooksPath, restricted, `{}`).want(403, auth.CodeForbidden).message(); strings.Contains(refused, "files") {
		t.Errorf("the refusal names a hidden scope: %s", refused)
	}
	for _, hide := range []scopes.Scope{scopes.AccountRead, "teams:read"} {
		if _, err := storageapi.NewHandler(storageapi.Config{Store: memory.New(), HideScopes: []scopes.Scope{hide}}); err == nil || !strings.HasPrefix(err.Error(), "storageapi: Config.HideScopes: ") {
			t.Errorf("hiding %s: %v", hide, err)
		}
	}
}

// TestHideBalances checks that no threshold can be set or seen in a service without balance.low.
func TestHideBalances(t *testing.T) {
	h := serve(t, storageapi.Config{Alerts: alerts.Config{HideEvents: []webhooks.EventType{alerts.TypeBalanceLow}, Unit: "EUR"}})
	admin := h.admin(alice)
	const body = `{"url":"https://example.com","events":["files.expiring"]`
	for _, threshold := range []string{"null", `"1"`} {
		refused := h.do("POST", webhooksPath, admin, body+`,"balanceThreshold":`+threshold+`}`).want(400, auth.CodeValidation).message()
		if want := `body has an unknown field "balanceThreshold"; the fields are url, events, resources, secret, headers, signatures.`; refused != want {
			t.Errorf("got %s, want %s", refused, want)
		}
	}
	made := h.do("POST", webhooksPath, admin, body+"}").want(201, "")
	one := made.header.Get("Location")
	h.do("PATCH", one, admin, `{"balanceThreshold":null}`).want(400, auth.CodeValidation)
	for _, path := range []string{one, webhooksPath} {
		if got := h.do("GET", path, admin, "").want(200, ""); strings.Contains(got.body, "balanceThreshold") {
			t.Errorf("it has a threshold: %s", got.body)
		}
	}
}

func TestUnit_InvalidThreshold_NamesIt(t *testing.T) {
	h := serve(t, storageapi.Config{Alerts: alerts.Config{Unit: "EUR"}})
	refused := h.do("POST", webhooksPath, h.admin(alice), `{"url":"https://example.com","events":["balance.low"],"balanceThreshold":"much"}`).want(400, auth.CodeValidation).message()
	if want := `balanceThreshold must be a decimal amount of EUR, such as "12.5".`; refused != want {
		t.Errorf("got %s, want %s", refused, want)
	}
}
