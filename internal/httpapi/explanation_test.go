package httpapi_test

import (
	"strings"
	"testing"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/webhooks"
)

// An explanation requires the authority to read the webhook and the event. Objects of another
// account must look as if they never existed. For keys limited to resources, see
// TestLimitedKey_EveryRoute_SeesNothingElse.
func TestExplanation_Authority(t *testing.T) {
	h := serve(t, storageapi.Config{})
	admin, other := h.admin(alice), h.admin(bob)
	_, files := h.key(alice, scopes.FilesRead)
	_, account := h.key(alice, scopes.AccountRead)
	_, both := h.key(alice, scopes.FilesRead, scopes.AccountRead)
	one := webhooksPath + "/" + h.do("POST", webhooksPath, admin, `{"url":"https://example.com","events":["balance.low"]}`).want(201, "").text("id")
	if err := h.api.Webhooks.Publish(t.Context(), webhooks.Event{ID: "files", Account: alice, Data: eventsOfAllTypes[0]}); err != nil {
		t.Fatal(err)
	}
	path := one + "/deliveries/files/explanation"
	for token, status := range map[string]int{files: 403, account: 403, both: 200, admin: 200, other: 404} {
		if got := h.do("GET", path, token, ""); got.status != status {
			t.Errorf("got %d %s, want %d", got.status, got.body, status)
		}
	}
	got := h.do("GET", path, both, "").want(200, "")
	want := `"reason":"not_subscribed","summary":"The webhook is not subscribed to the event's type.","state":null,"lastAttempt":null,"since":null,"until":null,"asOfNow":false,"changedAt":null,"elsewhere":false}`
	if !strings.HasSuffix(strings.TrimSpace(got.body), want) {
		t.Errorf("got %s, want %s", got.body, want)
	}
	h.do("GET", one+"/deliveries/none/explanation", both, "").want(404, auth.CodeNotFound)
	their := webhooksPath + "/" + h.do("POST", webhooksPath, other, `{"url":"https://example.com","events":["balance.low"]}`).want(201, "").text("id")
	foreign := h.do("GET", their+"/deliveries/files/explanation", other, "").want(404, auth.CodeNotFound)
	if unknown := h.do("GET", their+"/deliveries/none/explanation", other, ""); foreign.body != unknown.body {
		t.Errorf("another account's event: %s, one that never existed: %s", foreign.body, unknown.body)
	}
}
