package contract

import (
	"fmt"
	"testing"

	"github.com/storageapi/storageapi/scopes"
)

func (h *host) testKeys(t *testing.T) {
	made := h.do(t, "createKey", 201, body(`{"name":"reader","scopes":["files:read","files:read"]}`))
	id, value := made.text("id"), made.text("key")
	if want := h.prefix + "/api-keys/" + id; made.header.Get("Location") != want {
		t.Errorf("Location is %q, want %q", made.header.Get("Location"), want)
	}
	h.do(t, "createKey", 201, body(`{"name":"é","scopes":["account:read"],"expiresAt":"2999-12-31"}`))
	h.do(t, "createKey", 201, body(`{"name":"a","scopes":["account:read"],"expiresAt":"2999-12-31T23:59:59.123456789+14:00"}`))
	h.do(t, "createKey", 201, body(`{"name":"a","scopes":["account:read"],"expiresAt":null}`), header("Content-Type", "application/json; charset=UTF-8"))
	h.do(t, "createKey", 400, body(`{"name":"a","scopes":["account:read"],"expiresAt":"2001-01-01"}`))
	h.do(t, "createKey", 400, body(`{"name":"a"}`))
	h.do(t, "createKey", 403, body(`{"name":"a","scopes":["files:write"]}`), as(value))

	first := h.do(t, "listKeys", 200, query("limit=2"))
	h.do(t, "listKeys", 200, query("cursor="+first.text("nextCursor")))
	if found := h.do(t, "listKeys", 200, query("name=READ&scope=files:read")); !contains(found.body, id) || contains(found.body, `"name":"é"`) {
		t.Errorf("by name and scope: %v", found)
	}
	if found := h.do(t, "listKeys", 200, query("label=team=nobody")); !contains(found.body, `"data":[]`, `"hasMore":false`) {
		t.Errorf("by a label that no key has: %v", found)
	}
	if found := h.do(t, "listKeys", 200, query("unusedSince=2001-01-01&limit=1")); !contains(found.body, `"data":[]`, `"hasMore":false`) {
		t.Errorf("unused since before all were created: %v", found)
	}
	for _, bad := range []string{"name=", "name=a&name=b", "name=%ff", "scope=files", "scope=", "label=team", "label==a", "unusedSince=yesterday", "unusedSince=2001-01-01&unusedSince=2001-01-01"} {
		h.do(t, "listKeys", 400, query(bad))
	}
	h.do(t, "listKeys", 400, query("limit=0"))
	h.do(t, "listKeys", 400, query("cursor=abc"))

	if self := h.do(t, "getOwnKey", 200, as(value)); self.text("id") != id || self.text("hint") != value[:len(value)-38]+"…"+value[len(value)-10:len(value)-6] {
		t.Errorf("the key itself: %v", self)
	}
	h.do(t, "getOwnKey", 401, as("self"))
	_, leaked := h.key("leaked", scopes.Of(scopes.FilesRead))
	h.do(t, "revokeOwnKey", 204, as(leaked))
	h.do(t, "revokeOwnKey", 401, as(leaked))

	t.Run("changes", func(t *testing.T) { h.testKeyChanges(t, id, value) })

	wider, _ := h.key("wider", scopes.Of(scopes.FilesRead, scopes.FilesWrite))
	narrowID, narrow := h.key("narrow", scopes.Of(scopes.FilesRead))
	for _, op := range []string{"updateKey", "rotateKey", "deleteKey"} {
		h.do(t, op, 403, at(wider), as(narrow), exampleBody)
	}
	if refusals := h.do(t, "listRefusals", 200, at(narrowID)); !contains(refusals.body, `/api-keys/{id}","network":`) {
		t.Errorf("refusals: %v", refusals)
	}
	h.do(t, "deleteKey", 412, at(wider), header("If-Match", `"other"`))
	h.do(t, "deleteKey", 400, at(wider), header("If-Match", "other"))
	h.do(t, "deleteKey", 204, at(wider), header("If-Match", "*"))
	h.do(t, "deleteKey", 404, at(wider))
}

func (h *host) testKeyChanges(t *testing.T, id, value string) {
	tag := h.do(t, "getKey", 200, at(id)).header.Get("ETag")
	renamed := h.do(t, "updateKey", 200, at(id), body(`{"name":"renamed"}`), header("If-Match", tag))
	h.do(t, "updateKey", 412, at(id), body(`{"name":"lost"}`), header("If-Match", tag))
	h.do(t, "updateKey", 412, at(id), body(`{"name":"lost"}`), header("If-Match", "W/"+renamed.header.Get("ETag")))
	h.do(t, "updateKey", 200, at(id), body(`{}`), header("If-Match", tag+", "+renamed.header.Get("ETag")))
	h.do(t, "updateKey", 400, at(id), body(`{}`), header("If-Match", "nothing"))
	h.do(t, "updateKey", 400, at(id), body(`{"name":null}`))

	h.do(t, "listKeys", 403, as(value)) // counts as a use of the value
	h.do(t, "rotateKey", 412, at(id), header("If-Match", tag))
	h.do(t, "rotateKey", 400, at(id), header("If-Match", `"`))
	rotated := h.do(t, "rotateKey", 200, at(id), header("If-Match", renamed.header.Get("ETag")))
	if previous, _ := rotated.object()["previous"].(map[string]any); previous["lastUsedAt"] == nil {
		t.Errorf("the value of before is not said to be live and used: %v", rotated)
	}
	h.do(t, "rotateKey", 200, at(id), as(rotated.text("key")), body(`{"graceSeconds":0}`))
	h.do(t, "listKeys", 401, as(rotated.text("key")))
	for _, seconds := range []string{"0", "1", "31536000", "86400.0", "1e3", "null"} {
		h.do(t, "rotateKey", 200, at(id), body(`{"graceSeconds":`+seconds+`}`))
	}
	for _, seconds := range []string{"-1", "31536001", "0.5", `"1"`, "true", "1e300"} {
		h.do(t, "rotateKey", 400, at(id), body(`{"graceSeconds":`+seconds+`}`))
	}
	listed := h.do(t, "listKeys", 200)
	if want := fmt.Sprintf("%q", id); !contains(listed.body, want, `"previous":{"hint":"`, `"previous":null`) {
		t.Errorf("not all is listed: %v", listed)
	}
}
