package contract

import (
	"strings"
	"testing"
)

func (h *host) testAuditLog(t *testing.T) {
	made := h.do(t, "createKey", 201, body(`{"name":"audited","scopes":["files:read"]}`))
	key := made.text("id")
	h.do(t, "updateKey", 200, at(key), body(`{"name":"renamed"}`))
	h.do(t, "updateKey", 200, at(key), body(`{"name":"renamed"}`))
	h.do(t, "rotateKey", 200, at(key), body(`{"graceSeconds":60}`))
	h.do(t, "deleteKey", 204, at(key))
	listed := h.do(t, "listAuditLog", 200, query("target="+key))
	var actions []string
	for _, event := range listed.object()["data"].([]any) {
		actions = append(actions, event.(map[string]any)["action"].(string))
	}
	if got := strings.Join(actions, " "); got != "key.deleted key.rotated key.changed key.created" {
		t.Errorf("%s: %v", got, listed)
	}
	if !contains(listed.body, `"changedFields":["name"]`, `"kind":"key"`, `"name":"renamed"`) || contains(listed.body, `"hint":null},"actor":{"kind":"key"`) {
		t.Errorf("%v", listed)
	}
	first := h.do(t, "listAuditLog", 200, query("limit=1&target="+key))
	h.do(t, "listAuditLog", 200, query("limit=1&target="+key+"&cursor="+first.text("nextCursor")))
	for text, status := range map[string]int{
		"action=key.created&action=webhook.off": 200, "since=2026-01-01&until=2999-12-31": 200, "until=2026-01-01T00:00:00%2B01:00": 200,
		"action=key": 400, "target=abc": 400, "target=" + key + "&target=" + key: 400, "since=tomorrow": 400, "since=2026-01-02&until=2026-01-01": 400,
		"cursor=abc": 400, "limit=0": 400,
	} {
		h.do(t, "listAuditLog", status, query(text))
	}
}
