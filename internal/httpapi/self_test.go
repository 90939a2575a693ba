package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
)

// hintOf returns the hint for a value, which ends with the last four characters before the
// checksum.
func hintOf(token string) string { return "sak_…" + token[len(token)-10:len(token)-6] }

const selfPath = keysPath + "/self"

// TestSelf checks that every key can read its own record, and no other.
func TestSelf(t *testing.T) {
	c := newClock()
	h := serve(t, c.config())
	admin := h.admin(alice)
	id, first := h.expiringKey(alice, c.Now().Add(48*time.Hour), scopes.FilesRead)
	second := h.do("POST", keysPath+"/"+id+"/rotate", admin, `{"graceSeconds":3600}`).want(200, "").text("key")
	want := func(token, expiresAt string, replaced bool) {
		t.Helper()
		want := fmt.Sprintf(`{"id":%q,"name":"a key","hint":%q,"scopes":["files:read"],"expiresAt":%q,"replaced":%v}`, id, hintOf(token), expiresAt, replaced)
		got := h.do("GET", selfPath, token, "").want(200, "")
		if got.body != want || got.header.Get("Cache-Control") != "no-store" {
			t.Errorf("got  %s\nwant %s", got.body, want)
		}
		h.do("HEAD", selfPath, token, "").want(200, "")
	}
	want(first, "2026-01-31T13:00:00.000Z", true)
	want(second, "2026-02-02T12:00:00.000Z", false)

	// Without a valid key the response is the same as on other routes.
	elsewhere := h.do("GET", keysPath, "", "").want(401, "UNAUTHORIZED")
	refused := func(token string) {
		t.Helper()
		got := h.do("GET", selfPath, token, "").want(401, "UNAUTHORIZED")
		if got.body != elsewhere.body || fmt.Sprint(got.header) != fmt.Sprint(elsewhere.header) {
			t.Errorf("got  %v %s\nwant %v %s", got.header, got.body, elsewhere.header, elsewhere.body)
		}
	}
	refused("")
	refused("self")
	refused(second[:len(second)-1] + "!")
	c.Add(time.Hour)
	refused(first)
	c.Add(47 * time.Hour)
	refused(second)
	deleted, value := h.key(alice, scopes.FilesRead)
	h.do("DELETE", keysPath+"/"+deleted, admin, "").want(204, "")
	refused(value)

	for _, method := range []string{"PATCH", "POST"} {
		if got := h.do(method, selfPath, admin, "").want(405, "METHOD_NOT_ALLOWED"); got.header.Get("Allow") != "DELETE, GET, HEAD" {
			t.Errorf("%s: Allow is %q", method, got.header.Get("Allow"))
		}
	}
}

func TestSelf_CountsTowardRateLimit(t *testing.T) {
	c := newClock()
	config := c.config()
	config.RateLimit = auth.RateLimit{PerSecond: 1, Burst: 2}
	h := serve(t, config)
	_, token := h.key(alice, scopes.FilesRead)
	for _, remaining := range []string{"1", "0"} {
		if got := h.do("GET", selfPath, token, "").want(200, ""); got.header.Get("X-Ratelimit-Remaining") != remaining {
			t.Errorf("%q remain, want %s", got.header.Get("X-Ratelimit-Remaining"), remaining)
		}
	}
	h.do("GET", selfPath, token, "").want(http.StatusTooManyRequests, "RATE_LIMIT_EXCEEDED")
}

// The host's policy decides about other keys, but is not called for a key's own record.
func TestSelf_HostsPolicy_IsNotAsked(t *testing.T) {
	c := newClock()
	config := c.config()
	config.Authorize = func(context.Context, auth.Principal, auth.Access) error { return auth.ErrForbidden }
	h := serve(t, config)
	_, token := h.key(alice, scopes.FilesRead)
	h.do("GET", keysPath, token, "").want(403, "FORBIDDEN")
	h.do("GET", selfPath, token, "").want(200, "")
}
