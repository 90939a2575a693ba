package storageapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/memory"
)

// operate sends a request to the operations, with headers in pairs.
func operate(t *testing.T, operations http.Handler, method, target, body string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, target, strings.NewReader(body)).WithContext(t.Context())
	r.Host = "localhost:8081"
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
			continue
		}
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	operations.ServeHTTP(w, r)
	return w
}

// The API below an account needs no key, acts for this account only, and is not subject to the
// host's policy and rate limit.
func TestOperations_Account_ServesTheAPI(t *testing.T) {
	api := newHost(t, storageapi.Config{
		Store: memory.New(), Prefix: "/api", RateLimit: auth.RateLimit{PerSecond: 0.001, Burst: 1}, Keys: apikeys.Config{MaxPerAccount: 4},
		Authorize: func(context.Context, auth.Principal, auth.Access) error { return auth.ErrForbidden },
	})
	operations := api.Operations(storageapi.HealthThresholds{})
	const account = "acct/1?ü"
	base := "/accounts/" + url.PathEscape(account) + "/v2"
	var ids []string
	for range 3 { // more than a limited key could create
		made := operate(t, operations, "POST", base+"/api-keys", `{"name":"ci","scopes":["files:read"]}`, "Content-Type", "application/json", "Api-Key", "ignored")
		var key struct{ ID, Key string }
		if err := json.Unmarshal(made.Body.Bytes(), &key); err != nil || made.Code != 201 || made.Header().Get("Location") != base+"/api-keys/"+key.ID {
			t.Fatalf("got %d %s, Location %q", made.Code, made.Body, made.Header().Get("Location"))
		}
		if p, err := api.Keys.Verify(t.Context(), key.Key); err != nil || p.Account != account {
			t.Errorf("the key belongs to %q, %v", p.Account, err)
		}
		ids = append(ids, key.ID)
	}
	if other := operate(t, operations, "GET", "/accounts/acct_2/v2/api-keys/"+ids[0], ""); other.Code != 404 {
		t.Errorf("in another account: got %d", other.Code)
	}
	for _, self := range []string{"GET", "DELETE"} {
		if got := operate(t, operations, self, base+"/api-keys/self", ""); got.Code != 401 {
			t.Errorf("%s of the caller's own key, who has none: got %d", self, got.Code)
		}
	}
	// Nothing limits the caller, and no use and no refusal is recorded, because there is no key.
	if made := operate(t, operations, "POST", base+"/api-keys", `{"name":"env","scopes":["files:read"],"resources":["env-1"]}`, "Content-Type", "application/json"); made.Code != 201 {
		t.Errorf("a key that is limited to a resource: got %d %s", made.Code, made.Body)
	}
	if list := operate(t, operations, "GET", base+"/api-keys", ""); strings.Count(list.Body.String(), `"id":"key_`) != 4 || strings.Contains(list.Body.String(), "sUsed\"") || !strings.Contains(list.Body.String(), "env-1") {
		t.Errorf("got keys %s", list.Body)
	}
	if err := api.Keys.WriteUses(t.Context()); err != nil {
		t.Error(err)
	}
	if deleted := operate(t, operations, "DELETE", base+"/api-keys/"+ids[0], ""); deleted.Code != 204 {
		t.Errorf("got %d %s", deleted.Code, deleted.Body)
	}
	page, err := api.Audit.List(t.Context(), account, audit.Query{Limit: 1})
	if err != nil || len(page.Entries) != 1 || page.Entries[0].Action != audit.KeyDeleted || page.Entries[0].Actor != (audit.Actor{Kind: audit.ActorHost}) {
		t.Errorf("got audit entries %+v, %v", page.Entries, err)
	}
	if got := operate(t, operations, "GET", "/accounts/a/v2/nothing", ""); got.Code != 404 {
		t.Errorf("unknown path: got %d", got.Code)
	}
	// The public API does not accept the operators' header.
	r := httptest.NewRequest("GET", "/api/api-keys", nil)
	r.Header.Set("Api-Key", "operator")
	w := httptest.NewRecorder()
	if api.ServeHTTP(w, r); w.Code != 401 {
		t.Errorf("got %d on the public port", w.Code)
	}
}

// The routes of an account must keep nothing in memory, because operators and attackers may name
// any number of accounts.
func TestOperations_ManyAccounts_KeepsNothing(t *testing.T) {
	operations := newHost(t, storageapi.Config{Store: memory.New(), RateLimit: auth.RateLimit{PerSecond: 1}}).Operations(storageapi.HealthThresholds{})
	heap := func() uint64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.GC() // frees the objects whose finalizers ran in the first collection
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	request := func(from, to int) {
		for i := from; i < to; i++ {
			if got := operate(t, operations, "GET", fmt.Sprintf("/accounts/acct_%d/v2/api-keys", i), ""); got.Code != 200 {
				t.Fatalf("got %d %s", got.Code, got.Body)
			}
		}
	}
	request(0, 100)
	before := heap()
	request(100, 10_100)
	if after := heap(); after > before+256<<10 {
		t.Errorf("10,000 accounts take %d bytes, want at most 256 KiB", after-before)
	}
}

func TestOperations_Routes(t *testing.T) {
	api := newHost(t, storageapi.Config{Path: filepath.Join(t.TempDir(), "storage.db")})
	operations := api.Operations(storageapi.HealthThresholds{NoRun: true})
	key, token, err := api.Keys.Create(t.Context(), "acct_1", apikeys.CreateParams{Name: "ci", Scopes: scopes.Specified()})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		method, target string
		status         int
		says           string
	}{
		{"GET", "/ready", 200, `"ready":true`},
		{"GET", "/live", 200, `"live":true`},
		{"GET", "/stats", 200, `"pending":0,`},
		{"GET", "/webhooks?state=failing", 200, ""},
		{"GET", "/webhooks?state=off", 200, ""},
		{"GET", "/webhooks?state=held", 200, ""},
		{"GET", "/webhooks", 400, `"field":"state"`},
		{"POST", "/release", 200, `{"released":0}`},
		{"GET", "/release", 405, ""},
		{"GET", "/keys", 200, `{"account":"acct_1","id":"` + key.ID + `","name":"ci"`},
		{"GET", "/accounts", 200, `{"account":"acct_1","keys":1,"webhooks":0,"pending":0}`},
		{"GET", "/accounts/acct_1", 200, `"kind":"end"`},
		{"GET", "/backup", 200, ""},
		{"DELETE", "/keys", 200, `"live":true`},
		{"GET", "/keys", 404, "NOT_FOUND"},
		{"DELETE", "/accounts/acct_1", 200, `"auditEntries":`},
		{"GET", "/nothing", 404, ""},
	} {
		got := operate(t, operations, test.method, test.target, "", "Api-Key", token.Reveal())
		if got.Code != test.status || !strings.Contains(got.Body.String(), test.says) {
			t.Errorf("%s %s: got %d %.200s, want %d %q", test.method, test.target, got.Code, got.Body, test.status, test.says)
		}
	}
	if page := operate(t, operations, "POST", "/release", "", "Sec-Fetch-Site", "cross-site"); page.Code != 403 {
		t.Errorf("from a page of another site: got %d", page.Code)
	}
	inMemory := newHost(t, storageapi.Config{Store: memory.New()}).Operations(storageapi.HealthThresholds{})
	if got := operate(t, inMemory, "GET", "/backup", ""); got.Code != 409 || !strings.Contains(got.Body.String(), storageapi.ErrNoBackup.Error()) {
		t.Errorf("backup of a store without a file: got %d %s", got.Code, got.Body)
	}
}

// A page in an operator's browser can send requests to the private port, and can resolve its own
// host name to that port's address.
func TestOperations_FromWebPage_AreRefused(t *testing.T) {
	api := newHost(t, storageapi.Config{Store: memory.New()})
	operations := api.Operations(storageapi.HealthThresholds{NoRun: true}, "ops.example.com:8081")
	for _, test := range []struct {
		status int
		header []string
	}{
		{200, []string{"Host", "127.0.0.1:8081"}},
		{200, []string{"Host", "[::1]:8081"}},
		{200, []string{"Host", "storage:8081"}},
		{200, []string{"Host", "ops.example.com:8081"}},
		{200, []string{"Sec-Fetch-Site", "none"}},
		{403, []string{"Host", "evil.example:8081"}},
		{403, []string{"Sec-Fetch-Site", "cross-site"}},
		{403, []string{"Sec-Fetch-Site", "same-origin"}},
	} {
		if got := operate(t, operations, "GET", "/stats", "", test.header...); got.Code != test.status {
			t.Errorf("%q: got %d %s, want %d", test.header, got.Code, got.Body, test.status)
		}
	}
	if got := operate(t, operations, "POST", "/release", "", "Origin", "http://evil.example"); got.Code != 403 {
		t.Errorf("a POST from another origin: got %d, want 403", got.Code)
	}
}
