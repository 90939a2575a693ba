package httpapi_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi"
)

func TestInvalidFields_Several_AreAllNamed(t *testing.T) {
	h := serve(t, storageapi.Config{})
	admin := h.admin(alice)
	keyPath := keysPath + "/" + h.do("POST", keysPath, admin, newKey).want(201, "").text("id")
	webhook := h.do("POST", webhooksPath, admin, `{"url":"https://example.com","events":["balance.low"]}`).want(201, "")
	webhookPath := webhooksPath + "/" + webhook.text("id")
	for _, test := range []struct {
		name, method, path, body, header string
		want                             []string
	}{
		{"key: none given", "POST", keysPath, `{}`, "", []string{"name", "scopes"}},
		{"key: types and values", "POST", keysPath, `{"expiresAt":"soon","scopes":["files:burn"],"name":""}`, "", []string{"expiresAt", "scopes", "name"}},
		{"key: values only", "POST", keysPath, `{"name":" ","scopes":[],"expiresAt":"2001-01-01"}`, "", []string{"name", "scopes", "expiresAt"}},
		{"key: a header as well", "POST", keysPath, `{"name":1,"scopes":["files:read"]}`, "a b", []string{"name", "Idempotency-Key"}},
		{"key: unknown fields as well", "POST", keysPath, `{"nam":"a","scope":[],"scopes":["files:read"]}`, "", []string{"body", "name"}},
		{"key: twice", "POST", keysPath, `{"name":1,"name":2,"scopes":1}`, "", []string{"name", "scopes"}},
		{"change of a key", "PATCH", keyPath, `{"name":"","scope":["files:read"]}`, "", []string{"body", "name"}},
		{"webhook", "POST", webhooksPath, `{"url":"http://example.com","events":["nothing"],"balanceThreshold":"-1"}`, "", []string{"balanceThreshold", "url", "events"}},
		{"change of a webhook", "PATCH", webhookPath, `{"active":"yes","url":"http://example.com","events":[]}`, "", []string{"active", "url", "events"}},
		{"change of a webhook, values only", "PATCH", webhookPath, `{"url":"http://example.com","events":[]}`, "", []string{"url", "events"}},
		{"webhook: headers", "POST", webhooksPath, `{"url":"http://example.com","events":["balance.low"],"secret":"short","headers":{"X-A":{"value":1},"X-B":1}}`, "", []string{"secret", "headers", "url"}},
		{"change of a webhook: headers and pause", "PATCH", webhookPath, `{"url":"http://example.com","headers":{"Host":{"value":"a"}},"pausedUntil":"2001-01-01T00:00:00Z"}`, "", []string{"url", "pausedUntil", "headers"}},
		{"change of a missing webhook", "PATCH", webhooksPath + "/wh_" + someULID, `{"active":"yes","url":1}`, "", []string{"active", "url"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var headers []func(*http.Request)
			if test.header != "" {
				headers = append(headers, idempotent(test.header))
			}
			failure := h.do(test.method, test.path, admin, test.body, headers...).want(400, "VALIDATION_ERROR").failure().Error
			var got []string
			message := ""
			for _, wrong := range failure.Errors {
				got = append(got, wrong.Field)
				message += " " + wrong.Message
			}
			if diff := cmp.Diff(test.want, got); diff != "" || message != " "+failure.Message {
				t.Errorf("message %q, fields (-want +got):\n%s", failure.Message, diff)
			}
		})
	}
	if got := h.do("GET", webhookPath, admin, "").want(200, ""); got.text("url") != "https://example.com" {
		t.Errorf("an invalid change was stored: %s", got.body)
	}
	if got := h.do("GET", keysPath, admin, "").want(200, "").ids("id"); len(got) != 2 {
		t.Errorf("got %d keys after invalid creations, want 2", len(got))
	}
}
