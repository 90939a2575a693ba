package httpapi_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

const onAllEvents = `{"url":"https://example.com","events":["*"]}`

// TestAllEvents_ScopesOfAllTypesAreRequired creates a webhook for all events and changes it, with
// keys that lack a scope. Then the host declares another type, withdraws it, and hides all other
// types.
func TestAllEvents_ScopesOfAllTypesAreRequired(t *testing.T) {
	config := newClock().config()
	config.Store = memory.New()
	h := serve(t, config)
	_, files := h.key(alice, scopes.FilesRead)
	_, account := h.key(alice, scopes.AccountRead)
	_, both := h.key(alice, scopes.FilesRead, scopes.AccountRead)
	_, limited := h.limitedKey("limited", "a")
	wantRequired := func(got reply, want ...any) {
		t.Helper()
		failure, _ := got.want(403, auth.CodeForbidden).object()["error"].(map[string]any)
		if diff := cmp.Diff(want, failure["requiredScopes"]); diff != "" {
			t.Errorf("requiredScopes (-want +got):\n%s", diff)
		}
	}
	wantScopes := func(got reply, want ...any) {
		t.Helper()
		object := got.object()
		if diff := cmp.Diff(map[string]any{"events": []any{"*"}, "eventScopes": want}, map[string]any{"events": object["events"], "eventScopes": object["eventScopes"]}); diff != "" {
			t.Errorf("webhook (-want +got):\n%s", diff)
		}
	}
	wantRequired(h.do("POST", webhooksPath, account, onAllEvents), "files:read", "account:read")
	h.do("POST", webhooksPath, limited, onAllEvents).want(403, auth.CodeForbidden)
	h.do("POST", webhooksPath, limited, `{"url":"https://example.com","events":["*"],"resources":["a"]}`).want(201, "")
	if field := h.do("POST", webhooksPath, both, `{"url":"https://example.com","events":["*","balance.low"]}`).want(400, auth.CodeValidation).field(); field != "events" {
		t.Errorf("the error is about %q", field)
	}

	made := h.do("POST", webhooksPath, both, onAllEvents).want(201, "")
	wantScopes(made, "files:read", "account:read")
	one := webhooksPath + "/" + made.text("id")
	for _, token := range []string{files, account} {
		h.do("PATCH", one, token, `{"url":"https://evil.example"}`).want(403, auth.CodeForbidden)
		h.do("PATCH", one, token, `{"events":["balance.low"]}`).want(403, auth.CodeForbidden)
		h.do("POST", one+"/test", token, "").want(403, auth.CodeForbidden)
		h.do("DELETE", one, token, "").want(403, auth.CodeForbidden)
	}
	left := h.do("PATCH", one, both, `{"events":["balance.low"]}`).want(200, "")
	if left.object()["eventScopes"] != nil {
		t.Errorf("without *, it is %s", left.body)
	}
	h.do("PATCH", one, account, `{"url":"https://evil.example"}`).want(403, auth.CodeForbidden) // an event that requires files:read may be pending
	wantScopes(h.do("PATCH", one, both, `{"events":["*"]}`).want(200, ""), "files:read", "account:read")

	config.Scopes, config.Webhooks.Events = []scopes.Declaration{readTeams}, []webhooks.EventDeclaration{createdTeam}
	withTeams := serve(t, config)
	_, all := withTeams.key(alice, scopes.FilesRead, scopes.AccountRead, teamsRead)
	if sent := withTeams.sends(t, one, teamCreated{"team_1"}); sent {
		t.Error("an event under a scope that was not required is sent")
	}
	wantRequired(withTeams.do("PATCH", one, both, `{"events":["*"]}`), "files:read", "account:read", "teams:read")
	withTeams.do("PATCH", one, both, `{"url":"https://example.com/other"}`).want(200, "")
	before := withTeams.do("GET", one, all, "")
	changed := withTeams.do("PATCH", one, all, `{"events":["*"]}`).want(200, "")
	wantScopes(changed, "files:read", "account:read", "teams:read")
	if changed.header.Get("ETag") == before.header.Get("ETag") {
		t.Error("the ETag has not changed")
	}
	withTeams.do("PATCH", one, all, `{"events":["*"]}`).want(200, "") // changes nothing
	entries, _ := withTeams.do("GET", "/v2/audit-log?action=webhook.changed", all, "").want(200, "").object()["data"].([]any)
	if diff := cmp.Diff([]any{"eventScopes"}, entries[0].(map[string]any)["changedFields"]); diff != "" {
		t.Errorf("changedFields of the last entry (-want +got):\n%s", diff)
	}
	if sent := withTeams.sends(t, one, teamCreated{"team_1"}); !sent {
		t.Error("an event is not sent after its scope was required")
	}

	// Without the declarations, changing the webhook requires all scopes, as for a webhook with a
	// withdrawn type.
	h.do("PATCH", one, both, `{"active":false}`).want(403, auth.CodeForbidden)
	h.do("PATCH", one, h.admin(alice), `{"active":true}`).want(200, "")
	config.Scopes, config.Webhooks.Events, config.HideScopes = nil, nil, []scopes.Scope{scopes.FilesRead}
	config.Alerts.HideEvents = alerts.EventTypes()
	hidden := serve(t, config)
	hidden.do("PATCH", one, both, `{"active":false}`).want(403, auth.CodeForbidden)
	if len(hidden.api.Webhooks.EventTypes()) != 0 {
		t.Error("some events are not hidden")
	}
	hidden.do("POST", webhooksPath, account, onAllEvents).want(403, auth.CodeForbidden)
	if got := hidden.do("POST", webhooksPath, h.admin(alice), onAllEvents).want(201, ""); got.object()["eventScopes"] != nil {
		t.Errorf("without types, it is %s", got.body)
	}
}

// sends reports whether an event is sent to the webhook with this path.
func (h *host) sends(t *testing.T, path string, data webhooks.Data) bool {
	t.Helper()
	id := h.api.Webhooks.NewEventID()
	if err := h.api.Webhooks.Publish(t.Context(), webhooks.Event{ID: id, Account: alice, Data: data}); err != nil {
		t.Fatal(err)
	}
	return h.do("GET", path+"/deliveries/"+id, h.admin(alice), "").status == 200
}
