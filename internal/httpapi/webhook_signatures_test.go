package httpapi_test

import (
	"strings"
	"testing"

	"github.com/storageapi/storageapi/signing"
)

// TestWebhookSignatures creates a webhook that signs with a key pair, changes its signatures, and
// reads its public keys.
func TestWebhookSignatures(t *testing.T) {
	h := serve(t, newClock().config())
	admin := h.admin(alice)
	made := h.do("POST", webhooksPath, admin, `{"url":"https://example.com","events":["balance.low"],"signatures":["v1a","v1","v1a"]}`).want(201, "")
	one := webhooksPath + "/" + made.text("id")
	publicKey := func(got reply) string {
		t.Helper()
		secret, err := signing.ParseSecret(got.text("secret"))
		if err != nil {
			t.Fatal(err)
		}
		return secret.PublicKey().String()
	}
	says := func(got reply, signatures, keys string) {
		t.Helper()
		if want := `"signatures":` + signatures + `,"publicKeys":` + keys; !strings.Contains(got.body, want) {
			t.Errorf("got %s, want %s", got.body, want)
		}
	}
	first := publicKey(made)
	for _, got := range []reply{made, h.do("GET", one, admin, ""), h.do("GET", webhooksPath, admin, ""), h.do("PATCH", one, admin, `{}`).want(200, "")} {
		says(got, `["v1","v1a"]`, `["`+first+`"]`)
	}
	tag := h.do("GET", one, admin, "").header.Get("ETag")
	says(h.do("PATCH", one, admin, `{"signatures":["v1a"]}`, ifMatch(tag)).want(200, ""), `["v1a"]`, `["`+first+`"]`)
	h.do("PATCH", one, admin, `{"signatures":["v1"]}`, ifMatch(tag)).want(412, "PRECONDITION_FAILED")
	rotated := h.do("POST", one+"/rotate-secret", admin, "").want(200, "")
	says(rotated, `["v1a"]`, `["`+publicKey(rotated)+`","`+first+`"]`)

	for _, invalid := range []string{`null`, `[]`, `"v1"`, `["v2"]`, `["v1",null]`, `["V1"]`, `[1]`, `{}`} {
		if got := h.do("PATCH", one, admin, `{"signatures":`+invalid+`}`).want(400, "VALIDATION_ERROR"); got.field() != "signatures" {
			t.Errorf("%s: got %s", invalid, got.body)
		}
	}
	last := h.do("PATCH", one, admin, `{"signatures":["v1"]}`).want(200, "")
	if strings.Contains(last.body, "signatures") || strings.Contains(last.body, "publicKeys") {
		t.Errorf("only v1: %s", last.body)
	}
	h.do("POST", webhooksPath, admin, `{"url":"https://example.com","events":["balance.low"],"signatures":null}`).want(201, "")
	h.do("POST", webhooksPath, admin, `{"url":"https://example.com","events":["balance.low"],"signatures":[]}`).want(400, "VALIDATION_ERROR")
}
