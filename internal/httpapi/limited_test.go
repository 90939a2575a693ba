package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/webhooks"
)

// A leaked key that repeatedly creates and deletes objects with new idempotency keys must leave
// idempotency keys for the account's owner and the dashboard.
func TestIdempotencyKeys_LimitedKeyUsesUpItsShare_OthersCreate(t *testing.T) {
	c := newClock()
	config := c.config()
	config.Keys.MaxPerAccount = 8 // 80 idempotency keys for API keys, 40 for limited keys
	h := serve(t, config)
	admin := h.admin(alice)
	_, value := h.key(alice, scopes.FilesRead)
	_, other := h.key(alice, scopes.FilesRead)
	requests := 0
	create := func(token string) reply {
		t.Helper()
		requests++
		got := h.do("POST", keysPath, token, `{"name":"a","scopes":["files:read"]}`, func(r *http.Request) { r.Header.Set("Idempotency-Key", fmt.Sprint("request-", requests)) })
		if got.status == 201 {
			h.do("DELETE", keysPath+"/"+got.text("id"), admin, "").want(204, "")
		}
		return got
	}
	for range 40 {
		create(value).want(201, "")
	}
	create(value).want(429, "RATE_LIMIT_EXCEEDED")
	create(other).want(429, "RATE_LIMIT_EXCEEDED")
	for range 40 {
		create(admin).want(201, "")
	}
	create(admin).want(429, "RATE_LIMIT_EXCEEDED")
	for i := range 80 { // creates keys in Go, as the dashboard does
		key, _, err := h.api.Keys.Create(t.Context(), alice, apikeys.CreateParams{Name: "a", Scopes: scopes.Of(scopes.FilesRead), IdempotencyKey: fmt.Sprint("form-", i)})
		if err != nil {
			t.Fatalf("creation %d by the host: %v, want none", i, err)
		}
		h.do("DELETE", keysPath+"/"+key.ID, admin, "").want(204, "")
	}
}

// Once the leaked key is deleted, others must be able to create at once, not only a day later.
func TestIdempotencyKeys_KeyDeleted_AreReleased(t *testing.T) {
	c := newClock()
	config := c.config()
	config.Webhooks = webhooks.Config{MaxPerAccount: 4, Outbound: webhooks.Outbound{AllowHosts: []string{"example.com"}}} // 20 idempotency keys for limited keys
	h := serve(t, config)
	admin := h.admin(alice)
	leaked, value := h.key(alice, scopes.AccountRead)
	_, other := h.key(alice, scopes.AccountRead)
	requests := 0
	create := func(token string) reply {
		t.Helper()
		requests++
		got := h.do("POST", webhooksPath, token, `{"url":"https://example.com/","events":["balance.low"]}`, func(r *http.Request) { r.Header.Set("Idempotency-Key", fmt.Sprint("request-", requests)) })
		if got.status == 201 {
			h.do("DELETE", webhooksPath+"/"+got.text("id"), admin, "").want(204, "")
		}
		return got
	}
	for range 20 {
		create(value).want(201, "")
	}
	create(other).want(429, "RATE_LIMIT_EXCEEDED")
	h.do("DELETE", keysPath+"/"+leaked, admin, "").want(204, "")
	for range 20 {
		create(other).want(201, "")
	}
}

// A leaked key must not use up the key limit of its account, not even through the keys that it
// creates. Keys that others have created count toward the limit.
func TestKeys_LimitedKey_CreatesHalf(t *testing.T) {
	c := newClock()
	config := c.config()
	config.Keys.MaxPerAccount = 9
	h := serve(t, config)
	admin := h.admin(alice)
	_, narrow := h.key(alice, scopes.FilesRead)
	_, expiring := h.expiringKey(alice, c.Now().Add(24*time.Hour), allScopes()...)
	create := func(token string) reply {
		t.Helper()
		soon := c.Now().Add(time.Hour).Format(time.RFC3339)
		return h.do("POST", keysPath, token, fmt.Sprintf(`{"name":"a","scopes":["files:read"],"expiresAt":%q}`, soon))
	}
	created := create(narrow).want(201, "").text("key")
	for name, token := range map[string]string{"narrow": narrow, "created by narrow": created, "expiring": expiring} {
		if got := create(token).want(409, "CONFLICT"); !strings.Contains(got.message(), "fewer than 4") {
			t.Errorf("%s: got the message %q, want it to say fewer than 4", name, got.message())
		}
	}
	for range 5 {
		create(admin).want(201, "")
	}
	if got := create(admin).want(409, "CONFLICT"); !strings.Contains(got.message(), "at most 9 API keys") {
		t.Errorf("got the message %q, want it to say at most 9 API keys", got.message())
	}
}

// A leaked key must not use up the webhook limit of its account.
func TestWebhooks_LimitedKey_CreatesHalf(t *testing.T) {
	c := newClock()
	config := c.config()
	config.Webhooks = webhooks.Config{MaxPerAccount: 5, Outbound: webhooks.Outbound{AllowHosts: []string{"example.com"}}}
	h := serve(t, config)
	admin := h.admin(alice)
	_, limited := h.key(alice, scopes.FilesRead)
	create := func(token string) reply {
		t.Helper()
		return h.do("POST", webhooksPath, token, `{"url":"https://example.com/","events":["files.expiring"]}`)
	}
	for range 2 {
		create(limited).want(201, "")
	}
	if got := create(limited).want(409, "CONFLICT"); !strings.Contains(got.message(), "fewer than 2") {
		t.Errorf("got the message %q, want it to say fewer than 2", got.message())
	}
	for range 3 {
		create(admin).want(201, "")
	}
	if got := create(admin).want(409, "CONFLICT"); !strings.Contains(got.message(), "at most 5 webhooks") {
		t.Errorf("got the message %q, want it to say at most 5 webhooks", got.message())
	}
}
