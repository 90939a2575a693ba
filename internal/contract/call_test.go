package contract

import (
	"net/http"
	"testing"

	"github.com/storageapi/storageapi/auth"
)

// do calls the operation with that id as an administrator, with the changes made
// to the call, and wants the status.
func (h *host) do(t testing.TB, id string, want int, changes ...func(*call)) *exchange {
	t.Helper()
	op := h.byID(t, id)
	c := call{op: op, method: op.Method, path: op.Path, header: http.Header{auth.HeaderName: {h.admin}}}
	for _, change := range changes {
		change(&c)
	}
	done, err := h.exchange(c)
	if err != nil {
		t.Fatal(err)
	}
	if done.status != want {
		t.Fatalf("want status %d: %v", want, done)
	}
	// A request that goes wrong for no fault of its own is one as documented.
	switch want {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusUnsupportedMediaType, http.StatusRequestEntityTooLarge:
	default:
		if done.invalid != nil {
			t.Fatal(done)
		}
	}
	return done
}

// at sets the values in the path, none of which needs escaping.
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

// as makes the call with another key; with none if it is empty.
func as(key string) func(*call) {
	return func(c *call) {
		c.header.Del(auth.HeaderName)
		if key != "" {
			c.header.Set(auth.HeaderName, key)
		}
	}
}
