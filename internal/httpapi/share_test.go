package httpapi_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/storageapi/storageapi/scopes"
)

// TestShare: keys that cannot manage all keys of their account create no more than half of what
// it may have, however they go about it; the rest is there for those that can.
func TestShare(t *testing.T) {
	c := newClock()
	config := c.config()
	config.Keys.MaxPerAccount = 7
	h := serve(t, config)
	admin := h.admin(alice)
	_, narrow := h.key(alice, scopes.FilesRead)
	create := func(token, code string) string {
		t.Helper()
		status := 201
		if code != "" {
			status = 409
		}
		got := h.do("POST", keysPath, token, `{"name":"a","scopes":["files:read"]}`).want(status, code)
		if code != "" && !strings.Contains(got.message(), "fewer than 3") {
			t.Errorf("refused: %s", got.message())
		}
		if code != "" {
			return ""
		}
		return got.text("key")
	}
	for token, n := narrow, 0; n < 3; n++ {
		token = create(token, "") // each by the one before
	}
	create(narrow, "CONFLICT")
	for range 2 {
		create(admin, "")
	}
	if got := h.do("POST", keysPath, admin, `{"name":"a","scopes":["files:read"]}`).want(409, "CONFLICT"); !strings.Contains(got.message(), "at most 7 API keys") {
		t.Errorf("a full account: %s", got.message())
	}
	if got := h.do("GET", keysPath, admin, "").want(200, ""); strings.Count(got.body, `"createdBy":{"kind":"key"`) != 5 {
		t.Errorf("got %s", got.body)
	}
}

// TestShareOfKeysThatCanManageAll: in an account all of whose keys it can manage a key may
// create as many as the account may have.
func TestShareOfKeysThatCanManageAll(t *testing.T) {
	c := newClock()
	config := c.config()
	config.Keys.MaxPerAccount = 4
	h := serve(t, config)
	_, narrow := h.key(alice, scopes.FilesRead)
	for i := range 3 {
		h.do("POST", keysPath, narrow, fmt.Sprintf(`{"name":"%d","scopes":["files:read"],"expiresAt":"2999-01-01"}`, i)).want(201, "")
	}
	if got := h.do("POST", keysPath, narrow, `{"name":"a","scopes":["files:read"]}`).want(409, "CONFLICT"); !strings.Contains(got.message(), "at most 4 API keys") {
		t.Errorf("a full account: %s", got.message())
	}
}
