package contract

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"testing"

	"github.com/storageapi/storageapi/auth"
)

// do makes the call that prepare returns, and fails the test unless the response has status want.
func (h *host) do(t testing.TB, id string, want int, changes ...func(*call)) *exchange {
	t.Helper()
	done, err := h.exchange(h.prepare(id, changes...))
	if err != nil {
		t.Fatal(err)
	}
	if done.status != want {
		t.Fatalf("want status %d: %v", want, done)
	}
	// Only for these statuses may the request violate the document.
	switch want {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusUnsupportedMediaType, http.StatusRequestEntityTooLarge:
	default:
		if done.invalid != nil {
			t.Fatal(done)
		}
		values, _ := url.ParseQuery(done.query)
		name := cmp.Or(undocumented(maps.Keys(values), done.op.parameterNames()),
			undocumented(maps.Keys(done.call.header), done.op.parameterNames(), auth.HeaderName, "Content-Type"))
		if name != "" {
			t.Fatalf("parameter %s is not documented: %v", name, done)
		}
	}
	return done
}

// prepare returns a call of the operation with this ID. The call uses the administrator's key;
// changes then modify it.
func (h *host) prepare(id string, changes ...func(*call)) call {
	op := h.byID(h, id)
	c := call{op: op, method: op.Method, path: op.Path, header: http.Header{auth.HeaderName: {h.admin}}}
	for _, change := range changes {
		change(&c)
	}
	return c
}

// at sets the values of the path parameters. The values must not need escaping.
func at(values ...string) func(*call) {
	return func(c *call) { c.path, c.ids = c.op.path(values...) }
}

func query(text string) func(*call) { return func(c *call) { c.query = text } }

func body(text string) func(*call) {
	return func(c *call) {
		c.body = []byte(text)
		c.header.Set("Content-Type", "application/json")
	}
}

func header(name, value string) func(*call) { return func(c *call) { c.header.Set(name, value) } }

// as sets the key of the call, or removes it if key is empty.
func as(key string) func(*call) {
	return func(c *call) {
		c.header.Del(auth.HeaderName)
		if key != "" {
			c.header.Set(auth.HeaderName, key)
		}
	}
}
