package contract

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/storageapi/storageapi/scopes"
)

// webhook creates a webhook for all events and a path of the receiver. It returns the webhook's ID.
func (h *host) webhook(t testing.TB, path string) string {
	t.Helper()
	events, err := json.Marshal(h.api.Webhooks.EventTypes())
	if err != nil {
		t.Fatal(err)
	}
	return h.do(t, "createWebhook", 201, body(fmt.Sprintf(`{"url":%q,"events":%s}`, h.receiver.url+path, events))).text("id")
}

func (h *host) testWebhooks(t *testing.T) {
	made := h.do(t, "createWebhook", 201, body(fmt.Sprintf(`{"url":%q,"events":["balance.low","files.expiring"],"balanceThreshold":"0.000000001"}`, h.receiver.url)))
	id := made.text("id")
	if want := h.prefix + "/notifications/webhooks/" + id; made.header.Get("Location") != want {
		t.Errorf("Location is %q, want %q", made.header.Get("Location"), want)
	}
	loud := "HTTPS" + strings.TrimPrefix(h.receiver.url, "https")
	h.do(t, "createWebhook", 201, body(fmt.Sprintf(`{"url":%q,"events":["balance.low"],"balanceThreshold":null}`, loud)))
	h.do(t, "createWebhook", 201, body(fmt.Sprintf(`{"url":%q,"events":["*","*"]}`, h.receiver.url)))
	h.do(t, "createWebhook", 400, body(fmt.Sprintf(`{"url":%q,"events":["*","balance.low"]}`, h.receiver.url)))
	h.do(t, "createWebhook", 400, body(`{"url":"http://example.com","events":["balance.low"]}`))
	h.do(t, "createWebhook", 400, body(`{"url":"https://10.0.0.1","events":["balance.low"]}`))
	h.do(t, "createWebhook", 400, body(`{"url":"https://example.com","events":["balance.low"],"balanceThreshold":"0.0"}`))

	first := h.do(t, "listWebhooks", 200, query("limit=1"))
	h.do(t, "listWebhooks", 200, query("limit=1&cursor="+first.text("nextCursor")))
	h.do(t, "listWebhooks", 400, query("limit=101"))

	tag := h.do(t, "getWebhook", 200, at(id)).header.Get("ETag")
	changed := h.do(t, "updateWebhook", 200, at(id), header("If-Match", tag), body(fmt.Sprintf(
		`{"url":%q,"events":["balance.low"],"active":false,"balanceThreshold":null}`, h.receiver.url+"/other")))
	h.do(t, "updateWebhook", 412, at(id), header("If-Match", tag), body(`{"active":true}`))
	h.do(t, "updateWebhook", 200, at(id), header("If-Match", changed.header.Get("ETag")), body(`{"active":true,"balanceThreshold":"18446744073.709551615"}`))
	h.do(t, "updateWebhook", 200, at(id), body(`{}`))
	h.do(t, "updateWebhook", 400, at(id), body(`{"active":null}`))
	h.do(t, "updateWebhook", 400, at(id), body(`{"events":[]}`))
	h.do(t, "updateWebhook", 400, at(id), body(`{}`), header("If-Match", tag+tag))

	h.do(t, "rotateWebhookSecret", 412, at(id), header("If-Match", tag))
	h.do(t, "rotateWebhookSecret", 400, at(id), body(`{"graceSeconds":-1}`))
	rotated := h.do(t, "rotateWebhookSecret", 200, at(id), body(`{"graceSeconds":60}`), header("If-Match", "*"))
	if rotated.object()["previousSecretExpiresAt"] == nil || rotated.text("secret") == made.text("secret") {
		t.Error("the secret was not rotated")
	}
	h.do(t, "rotateWebhookSecret", 200, at(id))
	h.do(t, "testWebhook", 200, at(id)) // signed with two secrets

	_, reader := h.key("reader", scopes.Of(scopes.FilesRead))
	for _, op := range []string{"updateWebhook", "rotateWebhookSecret", "testWebhook", "createRecovery", "deleteWebhook"} {
		h.do(t, op, 403, at(id), as(reader), exampleBody)
	}
	h.do(t, "deleteWebhook", 412, at(id), header("If-Match", tag))
	h.do(t, "deleteWebhook", 400, at(id), header("If-Match", "*, "+tag))
	h.do(t, "deleteWebhook", 204, at(id), header("If-Match", h.do(t, "getWebhook", 200, at(id)).header.Get("ETag")))
	h.do(t, "deleteWebhook", 404, at(id))
}

func (h *host) testTestEvents(t *testing.T) {
	for path, status := range map[string]any{"": 204.0, "/fails": 503.0, "/gone": 410.0, "/breaks": nil} {
		id := h.webhook(t, path)
		tested := h.do(t, "testWebhook", 200, at(id))
		if attempt, _ := tested.object()["attempt"].(map[string]any); attempt["status"] != status {
			t.Errorf("%s: want status %v: %v", path, status, tested)
		}
		h.do(t, "testWebhook", 200, at(id), body(`{}`))
		h.do(t, "testWebhook", 400, at(id), body(`{"a":1}`))
		h.do(t, "deleteWebhook", 204, at(id))
	}
	id := h.webhook(t, "/hangs")
	ended := make(chan *exchange, 1)
	go func() {
		done, err := h.exchange(h.prepare("testWebhook", at(id)))
		if err != nil {
			t.Error(err)
		}
		ended <- done
	}()
	eventually(t, "a test is under way", func() bool { return h.receiver.hanging() > 0 })
	h.do(t, "testWebhook", 409, at(id))
	h.receiver.release()
	if done := <-ended; done == nil || done.status != 200 {
		t.Errorf("want status 200: %v", done)
	}
	h.do(t, "deleteWebhook", 204, at(id))
}

// testEvents sends an event of each type to the receiver, which checks each of them.
func (h *host) testEvents(t *testing.T) {
	id := h.webhook(t, "")
	for _, data := range h.events() {
		before := h.receiver.received(string(data.EventType()))
		h.publish(data)
		eventually(t, string(data.EventType())+" arrives", func() bool { return h.receiver.received(string(data.EventType())) > before })
	}
	h.do(t, "deleteWebhook", 204, at(id))
	for name := range h.spec.Webhooks {
		if h.receiver.received(name) == 0 {
			t.Errorf("documented and never received: %s", name)
		}
	}
}
