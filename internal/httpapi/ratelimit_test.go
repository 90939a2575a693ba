package httpapi_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
)

// TestRateLimit checks that every guarded request of a key counts: with any of the key's values,
// whatever the response, and also on the host's own routes.
func TestRateLimit(t *testing.T) {
	c := newClock()
	config := c.config()
	config.RateLimit = auth.RateLimit{PerSecond: 1, Burst: 10}
	api := newAPI(t, config)
	mux := http.NewServeMux()
	mux.Handle("/v2/", api)
	mux.Handle("GET /v2/environments", api.Auth.Require(scopes.EnvironmentsRead, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})))
	h := mount(t, api, mux)
	id, token := h.key(alice, allScopes()...)
	want := func(got reply, status int, limit, remaining, reset, retryAfter string) {
		t.Helper()
		header := [4]string{got.header.Get("X-RateLimit-Limit"), got.header.Get("X-RateLimit-Remaining"), got.header.Get("X-RateLimit-Reset"), got.header.Get("Retry-After")}
		if header != [4]string{limit, remaining, reset, retryAfter} || got.status != status {
			t.Errorf("got %d %v %s, want %d with %s, %s, %s, %s", got.status, header, got.body, status, limit, remaining, reset, retryAfter)
		}
	}
	want(h.do("GET", "/v2/environments", token, ""), 204, "10", "9", "1", "")
	want(h.do("GET", keysPath, token, ""), 200, "10", "8", "2", "")
	want(h.do("GET", "/v2/nothing", token, ""), 404, "10", "7", "3", "")
	want(h.do("PUT", keysPath, token, ""), 405, "10", "6", "4", "")
	want(h.do("POST", keysPath, token, "{"), 400, "10", "5", "5", "")
	made := h.do("POST", keysPath, token, newKey)
	want(made, 201, "10", "4", "6", "")
	rotated := h.do("POST", keysPath+"/"+id+"/rotate", token, "")
	want(rotated, 200, "10", "3", "7", "")
	want(h.do("GET", webhooksPath, rotated.text("key"), ""), 200, "10", "2", "8", "")
	want(h.do("GET", webhooksPath, token, ""), 200, "10", "1", "9", "")
	want(h.do("HEAD", webhooksPath, token, ""), 200, "10", "0", "10", "")
	for _, path := range []string{"/v2/environments", keysPath, "/v2/nothing"} {
		got := h.do("GET", path, token, "").want(429, "RATE_LIMIT_EXCEEDED")
		want(got, 429, "10", "0", "10", "1")
	}
	want(h.do("GET", keysPath, "bad", ""), 401, "", "", "", "")
	want(h.do("GET", keysPath, made.text("key"), ""), 403, "10", "9", "1", "")
	c.Add(2 * time.Second)
	want(h.do("GET", keysPath, token, ""), 200, "10", "1", "9", "")
}

func TestRateLimit_InvalidConfig_IsRejected(t *testing.T) {
	_, err := storageapi.NewHandler(storageapi.Config{Path: t.TempDir() + "/storage.db", RateLimit: auth.RateLimit{PerSecond: -1}})
	if want := "storageapi: auth: Config: RateLimit.PerSecond must be finite and not negative"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
