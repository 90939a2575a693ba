package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/storageapi/storageapi/scopes"
)

func idempotent(keys ...string) func(*http.Request) {
	return func(r *http.Request) { r.Header["Idempotency-Key"] = keys }
}

// TestLimits checks the maximum numbers of keys and of webhooks per account.
func TestLimits(t *testing.T) {
	config := newClock().config()
	config.Keys.MaxPerAccount, config.Webhooks.MaxPerAccount = 3, 2
	h := serve(t, config)
	admin, other := h.admin(alice), h.admin(bob)
	const newWebhook = `{"url":"https://example.com","events":["balance.low"]}`
	for path, test := range map[string]struct {
		body    string
		room    int
		message string
	}{
		keysPath:     {newKey, 2, "An account can have at most 3 API keys. Delete one first."},
		webhooksPath: {newWebhook, 2, "An account can have at most 2 webhooks. Delete one first."},
	} {
		var last string
		for range test.room {
			last = h.do("POST", path, admin, test.body).want(201, "").text("id")
		}
		if got := h.do("POST", path, admin, test.body).want(409, "CONFLICT"); got.message() != test.message {
			t.Errorf("got message %q, want %q", got.message(), test.message)
		}
		h.do("POST", path, admin, `{}`).want(400, "VALIDATION_ERROR")
		h.do("POST", path, other, test.body).want(201, "")
		h.do("DELETE", path+"/"+last, admin, "").want(204, "")
		h.do("POST", path, admin, test.body, idempotent("a")).want(201, "")
		h.do("POST", path, admin, test.body, idempotent("a")).want(200, "") // creates nothing
		h.do("POST", path, admin, test.body, idempotent("b")).want(409, "CONFLICT")
	}
}

// TestIdempotency repeats creations with the same and with other Idempotency-Keys.
func TestIdempotency(t *testing.T) {
	c := newClock()
	config := c.config()
	config.Webhooks.Now = c.Now
	h := serve(t, config)
	admin, other := h.admin(alice), h.admin(bob)
	for path, test := range map[string]struct{ body, formatted, different, secret, before, after string }{
		keysPath: {
			`{"name":"a","scopes":["files:read"],"expiresAt":"2027-01-01"}`,
			"{ \"expiresAt\": \"2027-01-01T01:00:00+01:00\",\n\"scopes\": [\"files:read\", \"files:read\"], \"name\": \"\\u0061\" }",
			`{"name":"b","scopes":["files:read"],"expiresAt":"2027-01-01"}`,
			"key", `"name":"a"`, `"lastUsedAt":null,"previous":null}`,
		},
		webhooksPath: {
			`{"url":"https://example.com","events":["balance.low"],"balanceThreshold":"0.5"}`,
			`{"balanceThreshold":"0.50","events":["balance.low","balance.low"],"url":"https:\/\/example.com"}`,
			`{"url":"https://example.com","events":["balance.low"]}`,
			"secret", `"url":"https://example.com"`, ``,
		},
	} {
		ids := func() int {
			return strings.Count(h.do("GET", path+"?limit=100", admin, "").want(200, "").body, `{"id":`)
		}
		before := ids()
		const key = `"8e03978e-40d5-43e8-bc93-6894a57f9324"` // with quotes, as in the IETF draft
		made := h.do("POST", path, admin, test.body, idempotent(key)).want(201, "")
		id, secret := made.text("id"), made.text(test.secret)
		c.Add(time.Hour)
		for _, body := range []string{test.body, test.formatted} {
			again := h.do("POST", path, admin, body, idempotent(key)).want(200, "")
			if again.text("id") != id || strings.Contains(again.body, secret) || again.object()[test.secret] != nil || again.header.Get("Location") != "" {
				t.Errorf("%s: again: got %v %s", path, again.header, again.body)
			}
			if got := h.do("GET", path+"/"+id, admin, ""); got.body != again.body || got.header.Get("ETag") != again.header.Get("ETag") {
				t.Errorf("%s: again: got %s, want %s", path, again.body, got.body)
			}
			if !strings.Contains(again.body, test.before) || !strings.HasSuffix(again.body, test.after) {
				t.Errorf("%s: again: got %s", path, again.body)
			}
		}
		h.do("POST", path, admin, test.different, idempotent(key)).want(409, "CONFLICT")
		h.do("POST", path, admin, `{}`, idempotent(key)).want(400, "VALIDATION_ERROR")
		h.do("POST", path, other, test.body, idempotent(key)).want(201, "")
		_, weak := h.key(alice, scopes.SecretsWrite)
		h.do("POST", path, weak, test.body, idempotent(key)).want(403, "FORBIDDEN")
		if path == keysPath {
			before++ // the weaker key counts toward the limit
		}
		for _, bad := range [][]string{{""}, {"a", "a"}, {"a b"}, {strings.Repeat("a", 129)}, {"\u00e9"}} {
			got := h.do("POST", path, admin, test.body, idempotent(bad...)).want(400, "VALIDATION_ERROR")
			if !strings.HasPrefix(got.message(), "Idempotency-Key must be") {
				t.Errorf("%q: %s", bad, got.message())
			}
		}
		if n := ids(); n != before+1 {
			t.Errorf("%s: %d are there, want %d", path, n, before+1)
		}

		h.do("DELETE", path+"/"+id, admin, "").want(204, "")
		if got := h.do("POST", path, admin, test.body, idempotent(key)).want(409, "CONFLICT"); !strings.Contains(got.message(), "has been deleted") {
			t.Errorf("what is deleted: %s", got.message())
		}
		h.do("GET", path+"/"+id, admin, "").want(404, "NOT_FOUND")
	}
}

// The test sends the same request several times concurrently. One of them must create an object,
// and the others must return it.
func TestIdempotency_Concurrent_CreatesOne(t *testing.T) {
	h := serve(t, newClock().config())
	admin := h.admin(alice)
	for round := range 5 {
		for path, body := range map[string]string{keysPath: newKey, webhooksPath: `{"url":"https://example.com","events":["balance.low"]}`} {
			var replies [6]reply
			var all sync.WaitGroup
			for i := range replies {
				all.Go(func() { replies[i] = h.do("POST", path, admin, body, idempotent(fmt.Sprint("request-", round))) })
			}
			all.Wait()
			made := 0
			for _, got := range replies {
				if got.status == 201 {
					made++
				} else {
					got.want(200, "")
				}
				if got.text("id") != replies[0].text("id") {
					t.Errorf("%s: two were made: %s and %s", path, replies[0].body, got.body)
				}
			}
			if made != 1 {
				t.Errorf("%s: %d say that they made it, want 1", path, made)
			}
		}
	}
}

// TestIdempotencyKeysAreBounded repeatedly creates and deletes an object, each time with a new
// Idempotency-Key.
func TestIdempotencyKeysAreBounded(t *testing.T) {
	config := newClock().config()
	config.Keys.MaxPerAccount, config.Webhooks.MaxPerAccount = 2, 1
	h := serve(t, config)
	admin := h.admin(alice)
	for _, kind := range []struct {
		path, body string
		most       int
	}{{keysPath, newKey, 20}, {webhooksPath, newWebhook, 10}} {
		create := func(name string) reply { return h.do("POST", kind.path, admin, kind.body, idempotent(name)) }
		for i := range kind.most {
			id := create(fmt.Sprint("a", i)).want(201, "").text("id")
			h.do("DELETE", kind.path+"/"+id, admin, "").want(204, "")
		}
		for range 2 {
			got := create("another").want(429, "RATE_LIMIT_EXCEEDED")
			if got.header.Get("Retry-After") != "3600" || !strings.Contains(got.message(), "too many Idempotency-Keys") {
				t.Errorf("%s: got %v %s", kind.path, got.header, got.body)
			}
		}
		create("a3").want(409, "CONFLICT") // an idempotency key that was used before
		id := h.do("POST", kind.path, admin, kind.body).want(201, "").text("id")
		h.do("DELETE", kind.path+"/"+id, admin, "").want(204, "")
		if kind.path == webhooksPath {
			h.do("POST", kind.path, h.admin(bob), kind.body, idempotent("another")).want(201, "")
		}
	}
}
