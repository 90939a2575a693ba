package httpapi_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi/apikeys"
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

// TestShare_KeyThatExpires_DoesNotManageKeysThatLast: a key with all scopes that expires cannot
// manage a key that does not, so it has the share of a weak key.
func TestShare_KeyThatExpires_DoesNotManageKeysThatLast(t *testing.T) {
	c := newClock()
	config := c.config()
	config.Keys.MaxPerAccount = 7
	h := serve(t, config)
	lasting, _ := h.key(alice, scopes.FilesRead)
	_, expiring := h.expiringKey(alice, c.Now().Add(24*time.Hour), allScopes()...)
	soon := c.Now().Add(time.Hour).Format(time.RFC3339)
	create := func() reply {
		t.Helper()
		return h.do("POST", keysPath, expiring, fmt.Sprintf(`{"name":"a","scopes":["files:read"],"expiresAt":%q}`, soon))
	}
	for range 3 {
		create().want(201, "")
	}
	if got := create().want(409, "CONFLICT"); !strings.Contains(got.message(), "fewer than 3") {
		t.Errorf("the fourth key: got %q, want the share of 3", got.message())
	}
	if err := h.api.Keys.Delete(t.Context(), alice, lasting, apikeys.DeleteParams{}); err != nil {
		t.Fatal(err)
	}
	create().want(201, "") // it can manage all that are left
}
