package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
)

// TestUnauthorized checks that the response does not reveal why a key is refused.
func TestUnauthorized(t *testing.T) {
	c := newClock()
	h := serve(t, c.config())
	_, good := h.key(alice, scopes.AccountRead)
	_, expired := h.expiringKey(alice, c.Now().Add(time.Minute), scopes.AccountRead)
	deletedID, deleted := h.key(alice, scopes.AccountRead)
	if err := h.api.Keys.Delete(t.Context(), alice, deletedID, apikeys.DeleteParams{}); err != nil {
		t.Fatal(err)
	}
	rotatedID, rotated := h.key(alice, scopes.AccountRead)
	if _, _, err := h.api.Keys.Rotate(t.Context(), alice, rotatedID, apikeys.RotateParams{}); err != nil {
		t.Fatal(err)
	}
	c.Add(time.Minute) // the instant of expiry

	other := serve(t, c.config())
	_, unknown := other.key(alice, scopes.AccountRead)
	other.do("GET", keysPath, unknown, "").want(200, "")
	h.do("GET", keysPath, good, "").want(200, "")

	header := func(name string, values ...string) func(*http.Request) {
		return func(r *http.Request) { r.Header[name] = values }
	}
	wrongSum := good[:len(good)-1] + string('0'+'1'-good[len(good)-1]&1)
	tests := []struct {
		name   string
		method string
		path   string
		change func(*http.Request)
	}{
		{"missing", "GET", keysPath, header("Accept", "*/*")},
		{"empty", "GET", keysPath, header("Api-Key", "")},
		{"malformed", "GET", keysPath, header("Api-Key", "sak_x")},
		{"not ASCII", "GET", keysPath, header("Api-Key", "schlüssel")},
		{"long", "GET", keysPath, header("Api-Key", strings.Repeat("x", 100_000))},
		{"wrong checksum", "GET", keysPath, header("Api-Key", wrongSum)},
		{"unknown", "GET", keysPath, header("Api-Key", unknown)},
		{"expired", "GET", keysPath, header("Api-Key", expired)},
		{"deleted", "GET", keysPath, header("Api-Key", deleted)},
		{"rotated", "GET", keysPath, header("Api-Key", rotated)},
		{"given twice", "GET", keysPath, header("Api-Key", good, good)},
		{"given with a bad one", "GET", keysPath, header("Api-Key", good, "x")},
		{"two values", "GET", keysPath, header("Api-Key", good+", "+good)},
		{"with a scheme", "GET", keysPath, header("Api-Key", "Bearer "+good)},
		{"in Authorization", "GET", keysPath, header("Authorization", "Bearer "+good)},
		{"in X-Api-Key", "GET", keysPath, header("X-Api-Key", good)},
		{"in a cookie", "GET", keysPath, header("Cookie", "Api-Key="+good)},
		{"in the query", "GET", keysPath + "?Api-Key=" + good, header("Accept", "*/*")},
		{"in the query as api_key", "GET", keysPath + "?api_key=" + good, header("Accept", "*/*")},
		{"key id", "GET", keysPath, header("Api-Key", deletedID)},
		{"no such path", "GET", "/v2/nothing", header("Accept", "*/*")},
		{"wrong method", "PUT", keysPath, header("Accept", "*/*")},
	}
	first := h.do("GET", keysPath, "", "").want(401, "UNAUTHORIZED")
	if got := first.header.Get("WWW-Authenticate"); got != `ApiKey realm="storageapi"` {
		t.Errorf("WWW-Authenticate: got %q", got)
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := h.do(test.method, test.path, "", "", test.change)
			if got.status != 401 || got.body != first.body {
				t.Errorf("got %d %s, want 401 %s", got.status, got.body, first.body)
			}
			if diff := cmp.Diff(first.header, got.header); diff != "" {
				t.Errorf("header (-first +got):\n%s", diff)
			}
		})
	}
}

func TestAuthorized_HeaderInAnySpelling_IsAccepted(t *testing.T) {
	h := serve(t, newClock().config())
	_, token := h.key(alice, scopes.AccountRead)
	for _, line := range []string{"Api-Key: " + token, "api-key:" + token, "API-KEY: \t" + token + " "} {
		h.raw("GET "+keysPath+" HTTP/1.1", "Host: x", "Connection: close", line, "", "").want(200, "")
	}
	h.do("GET", keysPath+"?limit=1", token, "", func(r *http.Request) { r.Header.Set("Authorization", "Bearer x") }).want(200, "")
}

// TestRequire sends requests for each scope with a key that has only another scope.
func TestRequire(t *testing.T) {
	api := newAPI(t, newClock().config())
	mux := http.NewServeMux()
	mux.Handle("/v2/", api)
	for s := range scopes.Specified().All() {
		mux.Handle("GET /v2/hosted/"+s.String(), api.Auth.Require(s, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			caller, _ := auth.PrincipalFrom(r.Context())
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			_, _ = fmt.Fprintf(w, "%q\n", caller.Account)
		})))
	}
	h := mount(t, api, mux)
	all := h.admin(alice)
	for held := range scopes.Specified().All() {
		_, token := h.key(alice, held)
		for needed := range scopes.Specified().All() {
			path := "/v2/hosted/" + needed.String()
			got := h.do("GET", path, token, "")
			if held == needed {
				if got.want(200, ""); got.body != `"acct_alice"` {
					t.Errorf("%s: got body %s", needed, got.body)
				}
				continue
			}
			if got.want(403, "FORBIDDEN"); !strings.Contains(got.message(), needed.String()) {
				t.Errorf("%s: got message %q", needed, got.message())
			}
		}
		h.do("GET", "/v2/hosted/"+held.String(), all, "").want(200, "")
		h.do("GET", "/v2/hosted/"+held.String(), "", "").want(401, "UNAUTHORIZED")
	}
}
