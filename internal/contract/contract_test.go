package contract

import (
	"flag"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/scopes"
)

// neverSeen are documented answers that the tests cannot provoke, and why.
var neverSeen = map[string]string{
	"createKey 409":     "needs two ULIDs that are the same",
	"createWebhook 409": "needs two ULIDs that are the same",
}

// nobody's ids, of the right form.
const (
	noKey     = "key_01JZ5T3K9QWERTYASDFGHJKMNP"
	noWebhook = "wh_01JZ5T3K9QWERTYASDFGHJKMNP"
)

func TestContract(t *testing.T) {
	d := load(t)
	h := newHost(t, d, nil)
	t.Run("keys", h.testKeys)
	t.Run("webhooks", h.testWebhooks)
	t.Run("events", h.testEvents)
	t.Run("any operation", h.testAny)
	t.Run("no operation", h.testNone)
	t.Run("a host that fails", func(t *testing.T) { testFailing(t, h) })

	if strings.Contains(flag.Lookup("test.run").Value.String(), "/") {
		return // a part of it
	}
	for _, op := range d.operations {
		for status := range op.Operation.Responses.Map() {
			answer := op.id + " " + status
			seen := h.seen[op.id][number(t, status)]
			if reason := neverSeen[answer]; !seen && reason == "" {
				t.Errorf("documented and never seen: %s", answer)
			} else if seen && reason != "" {
				t.Errorf("seen, although it %s: %s", reason, answer)
			}
			delete(neverSeen, answer)
		}
	}
	for answer := range neverSeen {
		t.Errorf("listed as never seen, and not documented: %s", answer)
	}
}

func number(t *testing.T, status string) int {
	t.Helper()
	var n int
	if _, err := fmt.Sscanf(status, "%d", &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func (h *host) testKeys(t *testing.T) {
	made := h.do(t, "createKey", 201, body(`{"name":"reader","scopes":["files:read","files:read"]}`))
	id, value := made.text("id"), made.text("key")
	if want := "/v2/api-keys/" + id; made.header.Get("Location") != want {
		t.Errorf("Location is %q, want %q", made.header.Get("Location"), want)
	}
	h.do(t, "createKey", 201, body(`{"name":"é","scopes":["account:read"],"expiresAt":"2999-12-31"}`))
	h.do(t, "createKey", 201, body(`{"name":"a","scopes":["account:read"],"expiresAt":"2999-12-31T23:59:59.123456789+14:00"}`))
	h.do(t, "createKey", 201, body(`{"name":"a","scopes":["account:read"],"expiresAt":null}`), header("Content-Type", "application/json; charset=UTF-8"))
	h.do(t, "createKey", 400, body(`{"name":"a","scopes":["account:read"],"expiresAt":"2001-01-01"}`))
	h.do(t, "createKey", 400, body(`{"name":"a"}`))
	h.do(t, "createKey", 403, body(`{"name":"a","scopes":["files:write"]}`), as(value))

	h.do(t, "getKey", 200, at(id))
	h.do(t, "getKey", 404, at(noKey))
	first := h.do(t, "listKeys", 200, query("limit=2"))
	h.do(t, "listKeys", 200, query("cursor="+first.text("nextCursor")))
	h.do(t, "listKeys", 200, query("unknown=1"))
	h.do(t, "listKeys", 400, query("limit=0"))
	h.do(t, "listKeys", 400, query("cursor=abc"))

	wider, _ := h.key("wider", scopes.Of(scopes.FilesRead, scopes.FilesWrite))
	h.do(t, "deleteKey", 403, at(wider), as(value))
	h.do(t, "deleteKey", 204, at(wider))
	h.do(t, "deleteKey", 404, at(wider))
}

func (h *host) testWebhooks(t *testing.T) {
	made := h.do(t, "createWebhook", 201, body(fmt.Sprintf(`{"url":%q,"events":["balance.low","files.expiring"],"balanceThreshold":"0.000000001"}`, h.receiver.url)))
	id := made.text("id")
	if want := "/v2/notifications/webhooks/" + id; made.header.Get("Location") != want {
		t.Errorf("Location is %q, want %q", made.header.Get("Location"), want)
	}
	h.do(t, "createWebhook", 201, body(`{"url":"HTTPS://example.com","events":["balance.low"],"balanceThreshold":null}`))
	h.do(t, "createWebhook", 400, body(`{"url":"http://example.com","events":["balance.low"]}`))
	h.do(t, "createWebhook", 400, body(`{"url":"https://10.0.0.1","events":["balance.low"]}`))
	h.do(t, "createWebhook", 400, body(`{"url":"https://example.com","events":["balance.low"],"balanceThreshold":"0.0"}`))

	h.do(t, "getWebhook", 200, at(id))
	h.do(t, "getWebhook", 404, at(noWebhook))
	first := h.do(t, "listWebhooks", 200, query("limit=1"))
	h.do(t, "listWebhooks", 200, query("limit=1&cursor="+first.text("nextCursor")))
	h.do(t, "listWebhooks", 400, query("limit=101"))

	_, reader := h.key("reader", scopes.Of(scopes.FilesRead))
	h.do(t, "deleteWebhook", 403, at(id), as(reader))
	h.do(t, "deleteWebhook", 204, at(id))
	h.do(t, "deleteWebhook", 404, at(id))
}

// testEvents has an event of each type arrive at the receiver, which checks it.
func (h *host) testEvents(t *testing.T) {
	h.do(t, "createWebhook", 201, body(fmt.Sprintf(`{"url":%q,"events":["files.expiring","balance.low",
		"bandwidth.limit_approaching","bandwidth.limit_reached","transactions.limit_approaching","transactions.limit_reached"]}`, h.receiver.url)))
	for _, data := range everyEvent() {
		before := h.receiver.received(string(data.Type()))
		h.publish(data)
		eventually(t, string(data.Type())+" arrives", func() bool { return h.receiver.received(string(data.Type())) > before })
	}
}

// testAny provokes what any operation can answer, or any that has a body.
func (h *host) testAny(t *testing.T) {
	_, weak := h.key("weak", scopes.Of(scopes.EnvironmentsRead))
	for _, op := range h.operations {
		named := nobody(op)
		h.do(t, op.id, 401, named, as(""))
		h.do(t, op.id, 401, named, as("sak_0123456789ABCDEFGHIJKLMNOPQRSTUVabcdef"))
		h.do(t, op.id, 401, named, func(c *call) { c.header.Add("Api-Key", h.admin) })
		if op.Operation.Responses.Status(http.StatusNotFound) != nil {
			h.do(t, op.id, 404, named, exampleBody)
		}
		if op.id != "createKey" && op.id != "deleteKey" { // of these, the target decides
			h.do(t, op.id, 403, named, as(weak), exampleBody)
		}
		if op.Method == http.MethodGet {
			h.do(t, op.id, 401, named, as(""), func(c *call) { c.method = http.MethodHead })
		}
		if op.Operation.RequestBody == nil {
			continue
		}
		h.do(t, op.id, 415, named, body("{}"), header("Content-Type", "text/plain"))
		h.do(t, op.id, 415, named, body("{}"), header("Content-Encoding", "gzip"))
		h.do(t, op.id, 413, named, body(strings.Repeat(" ", 64<<10)+"{}"))
		h.do(t, op.id, 400, named, body(`{"unknown":1}`))
		h.do(t, op.id, 400, named, body(`[]`))
	}
}

// nobody names in the path what there is none of.
func nobody(op *operation) func(*call) {
	if strings.Contains(op.Path, "/webhooks") {
		return at(noWebhook, "evt_1")
	}
	return at(noKey)
}

// exampleBody gives the call a body that its operation documents as an example.
func exampleBody(c *call) {
	if c.op.Operation.RequestBody == nil {
		return
	}
	for _, example := range c.op.Operation.RequestBody.Value.Content["application/json"].Examples {
		body(encode(example.Value.Value))(c)
		return
	}
}

// testNone calls paths and methods that are not documented.
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
	paths := make(map[string]string) // their methods
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
	none(404, "GET", "/v2/files")
	none(404, "POST", "/")
}

// testFailing calls every operation of a host that has lost its file.
func testFailing(t *testing.T, seen *host) {
	h := newHost(t, seen.document, func(c *storageapi.Config) {})
	h.seen = seen.seen
	if err := h.api.Close(); err != nil {
		t.Fatal(err)
	}
	for _, op := range h.operations {
		h.do(t, op.id, 500, nobody(op), exampleBody)
	}
}
