package httpapi_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/scopes"
)

// The two responses must be byte-identical.
func TestRoutes_IDOfAnotherAccount_AnswersAsForUnknownID(t *testing.T) {
	h := serve(t, newClock().config())
	ours, theirs := h.admin(alice), h.admin(bob)
	theirKey, theirToken := h.key(bob, scopes.FilesRead)
	theirWebhook := h.do("POST", webhooksPath, theirs, `{"url":"https://example.com","events":["balance.low"]}`).want(201, "").text("id")

	tests := []struct{ path, unknown, other string }{
		{keysPath, "key_" + someULID, theirKey},
		{webhooksPath, "wh_" + someULID, theirWebhook},
	}
	for _, test := range tests {
		for _, method := range []string{"GET", "DELETE"} {
			unknown := h.do(method, test.path+"/"+test.unknown, ours, "").want(404, "NOT_FOUND")
			for _, id := range []string{
				test.other, theirKey, theirWebhook, "x", "..", "%2e%2e", "%00", "a%2Fb", "%ff", " ", "key_", "wh_",
				strings.ToLower(test.other), test.other + "x", test.other + "%20", strings.Repeat("x", 10_000),
			} {
				id = strings.ReplaceAll(id, " ", "%20")
				got := h.do(method, test.path+"/"+id, ours, "")
				if got.status != unknown.status || got.body != unknown.body || !cmp.Equal(got.header, unknown.header) {
					t.Errorf("%s %s/%s: got %d %s", method, test.path, id, got.status, got.body)
				}
			}
		}
		h.do("GET", test.path+"/"+test.other, theirs, "").want(200, "")
		if list := h.do("GET", test.path, ours, "").want(200, ""); strings.Contains(list.body, test.other) {
			t.Errorf("another account's in the list: %s", list.body)
		}
	}
	h.do("DELETE", webhooksPath+"/"+theirWebhook, theirs, "").want(204, "")
	h.do("POST", keysPath, theirToken, `{"name":"a","scopes":["files:read"]}`).want(201, "")

	// Objects that a key creates belong to its account.
	made := h.do("POST", keysPath, ours, `{"name":"a","scopes":["account:read"]}`).want(201, "")
	h.do("GET", keysPath+"/"+made.text("id"), theirs, "").want(404, "NOT_FOUND")
	h.do("GET", keysPath+"/"+made.text("id"), made.text("key"), "").want(200, "")
}

// TestMalformedIDs checks that malformed IDs never reach the store. So stores need not accept
// arbitrary bytes.
func TestMalformedIDs(t *testing.T) {
	faults := newFaulty()
	h := serve(t, storageapi.Config{Store: faults})
	admin := h.admin(alice)
	faults.before = func(method string) error {
		if strings.HasSuffix(method, "ByID") || strings.HasPrefix(method, "Delete") {
			t.Errorf("%s was called", method)
		}
		return nil
	}
	for _, path := range []string{keysPath, webhooksPath} {
		for _, id := range []string{"x", "%00", strings.Repeat("x", 10_000), "key_", "wh_" + someULID[1:]} {
			h.do("GET", path+"/"+id, admin, "").want(404, "NOT_FOUND")
			h.do("DELETE", path+"/"+id, admin, "").want(404, "NOT_FOUND")
		}
	}
}
