package httpapi_test

import (
	"strings"
	"testing"

	"github.com/storageapi/storageapi/webhooks"
)

// TestWebhookHeaders creates a webhook with headers, changes them by name, and reads them. Secret
// values are never shown.
func TestWebhookHeaders(t *testing.T) {
	h := serve(t, newClock().config())
	admin := h.admin(alice)
	made := h.do("POST", webhooksPath, admin, `{"url":"https://example.com","events":["balance.low"],"headers":{"x-team":{"value":"a b"},"AUTHORIZATION":{"value":"Bearer 123","secret":true},"X-C":{"value":"c","secret":null}}}`).want(201, "")
	one := webhooksPath + "/" + made.text("id")
	wantHeaders := func(got reply, headers string, stored ...webhooks.Header) {
		t.Helper()
		if headers = `"headers":` + headers; !strings.Contains(got.body, headers) {
			t.Errorf("got %s, want %s", got.body, headers)
		}
		webhook, err := h.api.Webhooks.Get(t.Context(), alice, made.text("id"))
		if err != nil || len(webhook.Headers) != len(stored) {
			t.Fatalf("stored %v, %v", webhook.Headers, err)
		}
		for i, want := range stored {
			if webhook.Headers[i] != want {
				t.Errorf("stored %v, want %v", webhook.Headers[i], want)
			}
		}
	}
	all := `{"Authorization":{"value":null,"secret":true},"X-C":{"value":"c","secret":false},"X-Team":{"value":"a b","secret":false}}`
	authorization := webhooks.Header{Name: "Authorization", Value: "Bearer 123", Secret: true}
	for _, got := range []reply{made, h.do("GET", one, admin, ""), h.do("GET", webhooksPath, admin, ""), h.do("PATCH", one, admin, `{"headers":{}}`).want(200, "")} {
		wantHeaders(got, all, authorization, webhooks.Header{Name: "X-C", Value: "c"}, webhooks.Header{Name: "X-Team", Value: "a b"})
	}
	got := h.do("PATCH", one, admin, `{"headers":{"X-C":null,"x-team":{"value":"b"},"X-Unknown":null}}`).want(200, "")
	wantHeaders(got, `{"Authorization":{"value":null,"secret":true},"X-Team":{"value":"b","secret":false}}`, authorization, webhooks.Header{Name: "X-Team", Value: "b"})
	rotated := h.do("POST", one+"/rotate-secret", admin, "").want(200, "")
	wantHeaders(rotated, `{"Authorization":{"value":null,"secret":true},"X-Team":{"value":"b","secret":false}}`, authorization, webhooks.Header{Name: "X-Team", Value: "b"})
	for _, invalid := range []string{
		`null`, `[]`, `"X-A: 1"`, `{"X-A":"1"}`, `{"X-A":{}}`, `{"X-A":{"value":""}}`, `{"X-A":{"value":null}}`, `{"X-A":{"value":"1","secret":"yes"}}`, `{"X-A":{"value":"1","other":1}}`,
		`{"X-A":{"secret":true}}`, `{"X-A":{"value":"1"},"x-a":{"value":"1"}}`, `{"X-A":{"value":"1"},"X-A":{"value":"1"}}`, `{"Host":{"value":"1"}}`, `{"X-A\r\nX-B":{"value":"1"}}`,
		`{"X-A":{"value":"1\r\nX-B: 1"}}`, `{"":{"value":"1"}}`,
	} {
		if got := h.do("PATCH", one, admin, `{"headers":`+invalid+`}`).want(400, "VALIDATION_ERROR"); got.field() != "headers" {
			t.Errorf("%s: got %s", invalid, got.body)
		}
	}
	last := h.do("PATCH", one, admin, `{"headers":{"authorization":null,"X-TEAM":null}}`).want(200, "")
	if strings.Contains(last.body, "headers") {
		t.Errorf("without headers: %s", last.body)
	}
	h.do("POST", webhooksPath, admin, `{"url":"https://example.com","events":["balance.low"],"headers":null}`).want(201, "")
	h.do("POST", webhooksPath, admin, `{"url":"https://example.com","events":["balance.low"],"headers":{"X-A":null}}`).want(400, "VALIDATION_ERROR")
}

// The ETag of a webhook changes with the value of a secret header, so that a client with an older
// ETag cannot overwrite the change.
func TestWebhookHeaders_SecretValueChanges_ChangesETag(t *testing.T) {
	h := serve(t, newClock().config())
	admin := h.admin(alice)
	one := webhooksPath + "/" + h.do("POST", webhooksPath, admin, `{"url":"https://example.com","events":["balance.low"]}`).want(201, "").text("id")
	seen := map[string]bool{h.do("GET", one, admin, "").want(200, "").header.Get("ETag"): true}
	for _, change := range []struct {
		body    string
		changes bool
	}{
		{`{"headers":{"X-Token":{"value":"guessable","secret":true}}}`, true},
		{`{"headers":{"X-Token":{"value":"guessable","secret":true}}}`, false},
		{`{"headers":{"X-Token":{"value":"different","secret":true}}}`, true},
		{`{"headers":{"X-Token":{"value":"guessable","secret":true}}}`, true}, // a new tag, although the header had this value before
		{`{"headers":{"X-Token":null}}`, true},
	} {
		tag := h.do("PATCH", one, admin, change.body).want(200, "").header.Get("ETag")
		if seen[tag] == change.changes {
			t.Errorf("%s: tag %s changed: %v, want %v", change.body, tag, !seen[tag], change.changes)
		}
		seen[tag] = true
	}
}
