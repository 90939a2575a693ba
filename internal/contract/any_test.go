package contract

import (
	"net/http"
	"strings"
	"testing"

	"github.com/storageapi/storageapi/scopes"
)

// testAny provokes the responses common to all operations, and the responses common to all
// operations with a body.
func (h *host) testAny(t *testing.T) {
	_, weak := h.key("weak", scopes.Of(scopes.EnvironmentsRead))
	for _, op := range h.operations {
		h.do(t, op.id, 401, nobody, as(""))
		h.do(t, op.id, 401, nobody, as("sak_0123456789ABCDEFGHIJKLMNOPQRSTUVabcdef"))
		h.do(t, op.id, 401, nobody, func(c *call) { c.header.Add("Api-Key", h.admin) })
		if op.Operation.Responses.Status(http.StatusNotFound) != nil && strings.Contains(op.Path, "{") { // operations with IDs only in the query are tested elsewhere
			h.do(t, op.id, 404, nobody, exampleBody)
		}
		if op.Operation.Responses.Status(http.StatusForbidden) == nil {
			value, want := weak, http.StatusOK
			if op.Method == http.MethodDelete { // the request revokes the value that it carries, so use a new key
				_, value = h.key("spent", scopes.Of(scopes.EnvironmentsRead))
				want = http.StatusNoContent
			}
			h.do(t, op.id, want, nobody, as(value))
		} else if onKey := strings.HasPrefix(op.Path, h.prefix+"/api-keys"); !onKey || op.Method == http.MethodGet {
			h.do(t, op.id, 403, nobody, as(weak), exampleBody) // permission to change keys depends on the target key
		}
		h.do(t, op.id, 400, nobody, exampleBody, query("unknown=1"))
		if op.Method == http.MethodGet {
			h.do(t, op.id, 401, nobody, as(""), func(c *call) { c.method = http.MethodHead })
		}
		if op.Operation.RequestBody == nil {
			continue
		}
		h.do(t, op.id, 415, nobody, body("{}"), header("Content-Type", "text/plain"))
		h.do(t, op.id, 415, nobody, body("{}"), header("Content-Encoding", "gzip"))
		h.do(t, op.id, 413, nobody, body(strings.Repeat(" ", 64<<10)+"{}"))
		h.do(t, op.id, 400, nobody, body(`{"unknown":1}`))
		h.do(t, op.id, 400, nobody, body(`[]`))
	}
}

// nobody sets the IDs in the path to the document's examples. No object has these IDs.
func nobody(c *call) {
	var values []string
	for _, parameter := range c.op.parameters() {
		if parameter.In == "path" {
			values = append(values, parameter.Schema.Value.Examples[0].(string))
		}
	}
	at(values...)(c)
}

// exampleBody sets the body to an example from the operation's documentation.
func exampleBody(c *call) {
	if c.op.Operation.RequestBody == nil {
		return
	}
	for _, example := range c.op.Operation.RequestBody.Value.Content["application/json"].Examples {
		body(encode(example.Value.Value))(c)
		return
	}
}

// testNone sends requests with undocumented paths and methods.
func (h *host) testNone(t *testing.T) {
	none := func(status int, method, path string) {
		t.Helper()
		done, err := h.exchange(call{op: h.otherwise[status], method: method, path: path, header: http.Header{"Api-Key": {h.admin}}})
		if err != nil {
			t.Error(err)
		} else if done.status != status {
			t.Errorf("want %d: %v", status, done)
		}
	}
	paths := make(map[string]string) // documented methods by path
	for _, op := range h.operations {
		paths[op.Path] += op.Method + " "
	}
	for path, documented := range paths {
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY"} {
			if !strings.Contains(documented, method+" ") {
				none(405, method, path)
			}
		}
		none(404, "GET", path+"/")
		none(404, "PUT", path+"/more/and/more")
	}
	none(404, "GET", h.prefix+"/files")
	none(404, "POST", "/")
}
