package httpapi_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/webhooks"
)

// history returns the account's audit entries, oldest first, as "actor action target fields".
func history(t *testing.T, api *storageapi.Handler, account string) (list []string) {
	t.Helper()
	page, err := api.Audit.List(t.Context(), account, audit.Query{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range page.Entries {
		line := fmt.Sprint(n.Actor.Kind, " ", n.Action, " ", strings.Join(n.Changed, ","))
		list = append([]string{strings.TrimSpace(line)}, list...)
	}
	return list
}

// The test makes every kind of change over HTTP. Each change that takes effect must have one audit
// entry, and other requests none.
func TestAuditTrail_EveryChange_HasOneEntry(t *testing.T) {
	h := serve(t, storageapi.Config{Webhooks: webhooks.Config{Outbound: webhooks.Outbound{AllowHosts: []string{"example.com"}}}})
	admin := h.admin(alice)
	key := keysPath + "/" + h.do("POST", keysPath, admin, `{"name":"a","scopes":["files:read"]}`).want(201, "").text("id")
	h.do("PATCH", key, admin, `{"name":"a"}`).want(200, "")
	h.do("PATCH", key, admin, `{"name":"b"}`).want(200, "")
	h.do("POST", key+"/rotate", admin, "").want(200, "")
	h.do("DELETE", key, admin, "").want(204, "")
	h.do("DELETE", key, admin, "").want(404, "NOT_FOUND")
	h.do("POST", keysPath, admin, `{"name":"","scopes":["files:read"]}`).want(400, "VALIDATION_ERROR")

	hook := webhooksPath + "/" + h.do("POST", webhooksPath, admin, `{"url":"https://example.com/","events":["balance.low"]}`).want(201, "").text("id")
	h.do("PATCH", hook, admin, `{"active":true}`).want(200, "")
	h.do("PATCH", hook, admin, `{"active":false,"url":"https://example.com/secret","events":["balance.low","files.expiring"],"balanceThreshold":"1.00"}`).want(200, "")
	h.do("POST", hook+"/rotate-secret", admin, "").want(200, "")
	h.do("POST", hook+"/recoveries", admin, "").want(202, "")
	h.do("POST", hook+"/recoveries", admin, "").want(409, "CONFLICT")
	h.do("DELETE", hook, admin, "").want(204, "")
	want := []string{
		"host key.created", "key key.created", "key key.changed name", "key key.rotated", "key key.deleted",
		"key webhook.created", "key webhook.changed url,events,active,threshold", "key webhook.rotated", "key recovery.started", "key webhook.deleted",
	}
	if diff := cmp.Diff(want, history(t, h.api, alice)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	listed := h.do("GET", "/v2/audit-log?limit=100", admin, "").want(200, "")
	if strings.Contains(listed.body, "/secret") || strings.Contains(listed.body, admin) || regexp.MustCompile(`sak_\w`).MatchString(listed.body) || strings.Contains(listed.body, "whsec_") {
		t.Errorf("it has values: %s", listed.body)
	}
	if !strings.Contains(listed.body, `"changedFields":["url","events","active","balanceThreshold"]`) {
		t.Errorf("the change of the webhook is not in %s", listed.body)
	}
	var names []string
	for _, one := range listed.object()["data"].([]any) {
		event := one.(map[string]any)
		target, actor := event["target"].(map[string]any), event["actor"].(map[string]any)
		names = append(names, fmt.Sprint(event["action"], " ", target["name"], " ", target["hint"] != nil, " by ", actor["name"], " ", actor["hint"] != nil, " ", event["turned"]))
	}
	slices.Reverse(names)
	want = []string{ // the names of targets before each change; for creations, the new names
		"key.created a key true by <nil> false <nil>", "key.created a true by a key true <nil>", "key.changed a true by a key true <nil>",
		"key.rotated b true by a key true <nil>", "key.deleted b true by a key true <nil>", "webhook.created https://example.com false by a key true <nil>",
		"webhook.changed https://example.com false by a key true off", "webhook.rotated https://example.com false by a key true <nil>",
		"recovery.started https://example.com false by a key true <nil>", "webhook.deleted https://example.com false by a key true <nil>",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	other := h.admin(bob)
	if got := h.do("GET", "/v2/audit-log", other, "").want(200, "").body; strings.Count(got, `"action"`) != 1 {
		t.Errorf("another account sees %s", got)
	}
	_, weak := h.key(alice, scopes.FilesRead)
	h.do("GET", "/v2/audit-log", weak, "").want(403, "FORBIDDEN")
}

// The request ID and the client address must come from the host's functions, never from the client.
func TestAuditTrail_ClientSendsRequestIDAndAddress_UsesTheHosts(t *testing.T) {
	for name, test := range map[string]struct {
		config        storageapi.Config
		id, addressed string
	}{
		"by default": {storageapi.Config{}, "", "127.0.0.1"},
		"as the host says": {storageapi.Config{
			RequestID:     func(r *http.Request) string { return r.Header.Get("X-Of-The-Host") },
			ClientAddress: func(*http.Request) string { return "2001:db8::7" },
		}, "7", "2001:db8::7"},
		"what cannot be shown is left out": {storageapi.Config{
			RequestID:     func(*http.Request) string { return "a\nb" },
			ClientAddress: func(*http.Request) string { return strings.Repeat("1", 65) },
		}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := serve(t, test.config)
			admin := h.admin(alice)
			h.do("POST", keysPath, admin, `{"name":"a","scopes":["files:read"]}`, func(r *http.Request) {
				r.Header.Set("X-Of-The-Host", "7")
				r.Header.Set("X-Request-Id", "8")
				r.Header.Set("X-Forwarded-For", "192.0.2.1")
			}).want(201, "")
			page, err := h.api.Audit.List(t.Context(), alice, audit.Query{Limit: 1})
			if err != nil {
				t.Fatal(err)
			}
			if n := page.Entries[0]; n.RequestID != test.id || n.ClientAddress != test.addressed || n.Actor.Kind != audit.ActorKey {
				t.Errorf("%+v", n)
			}
		})
	}
}

// The test imports a key twice.
func TestAuditTrail_ImportedKeys_AreIncluded(t *testing.T) {
	h := serve(t, storageapi.Config{Keys: apikeys.Config{Legacy: []apikeys.Legacy{{Kind: "old", MinLength: 20, MaxLength: 40, Alphabet: "abcdef0123456789"}}}})
	for range 2 {
		for _, result := range h.api.Keys.Import(t.Context(), alice, []apikeys.ImportedKey{{
			Kind: "old", Digest: strings.Repeat("ab", 32), Name: "old", Scopes: scopes.Of(scopes.FilesRead),
		}}) {
			if result.Err != nil {
				t.Fatal(result.Err)
			}
		}
	}
	if diff := cmp.Diff([]string{"host key.imported"}, history(t, h.api, alice)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
