package dashboard_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/dashboard"
	"github.com/storageapi/storageapi/webhooks"
)

// TestAuditLog changes keys and webhooks, on the pages and in other ways, and then reads the audit
// log.
func TestAuditLog(t *testing.T) {
	s := newSite(t, storageapi.Config{Webhooks: webhooks.Config{Outbound: webhooks.Outbound{AllowHosts: []string{"example.com"}}}})
	s.pages = s.mount(dashboard.Config{Logger: slog.New(slog.DiscardHandler), Actor: func(*http.Request) string { return "ada@example.com" }})
	s.get("audit-log").want(http.StatusOK).says("Nothing yet")

	by := func(actor audit.Actor) context.Context {
		return audit.WithRequest(audit.WithActor(t.Context(), actor), "req-7", "2001:db8::7")
	}
	key, _, err := s.api.Keys.Create(by(audit.Actor{Kind: audit.ActorKey, ID: "key_parent"}), alice, apikeys.CreateParams{Name: "a key", Scopes: s.api.Keys.Scopes().All()})
	if err != nil {
		t.Fatal(err)
	}
	other, _ := s.key(alice, "another", time.Time{})
	s.post("api-keys/"+key.ID, s.get("api-keys/"+key.ID).form("name", "b")).want(http.StatusSeeOther)
	hook, err := s.api.Webhooks.Create(t.Context(), alice, webhooks.CreateParams{URL: "https://example.com/secret", Events: alerts.EventTypes()})
	if err != nil {
		t.Fatal(err)
	}
	s.post("webhooks/"+hook.ID+"/turn", s.get("webhooks/"+hook.ID).form("to", "off")).want(http.StatusSeeOther)
	recovery, err := s.api.Webhooks.Recover(t.Context(), alice, hook.ID, webhooks.RecoverParams{})
	if err != nil {
		t.Fatal(err)
	}
	s.post("api-keys/"+other.ID+"/revoke", s.get("api-keys/"+other.ID+"/revoke").form()).want(http.StatusSeeOther)

	all := s.get("audit-log").says("Key created", "key_parent", "2001:db8::7", "req-7", "Key changed : name", "ada@example.com", "Webhook created",
		"Webhook turned off", "Missed events resent : "+recovery.ID, "Key revoked another "+other.Hint, "The service").hides("on/off state")
	if strings.Contains(all.body, "api-keys/"+other.ID) || !strings.Contains(all.body, ">b</a>") || !strings.Contains(all.body, "audit-log?target="+other.ID) {
		t.Errorf("it does not lead to what is there:\n%s", all.body)
	}
	s.get("audit-log?target="+key.ID).says("Key created", "Key changed").hides(hook.ID, other.ID)
	s.get("audit-log?target="+hook.ID).says("Webhook created").hides(key.ID, "Key created")
	s.get("audit-log?target="+other.ID).says("Key created", "Key revoked") // the log of a deleted key can still be read
	if !strings.Contains(s.get("api-keys/"+key.ID).body, "audit-log?target="+key.ID) || !strings.Contains(s.get("webhooks/"+hook.ID).body, "audit-log?target="+hook.ID) {
		t.Error("the pages do not lead to their audit log")
	}
	for _, target := range []string{"x", "evt_1", "key", strings.Repeat("key_", 99)} {
		s.get("audit-log?target=" + target).want(http.StatusNotFound)
	}
	s.account = bob
	s.get("audit-log").says("Nothing yet")
	s.get("audit-log?target=" + key.ID).says("Nothing yet")
}

// TestAuditLogPages reads an audit log of more than one page.
func TestAuditLogPages(t *testing.T) {
	s := newSite(t, storageapi.Config{})
	key, _ := s.key(alice, "0", time.Time{})
	for i := range 60 {
		name := fmt.Sprint("n", i)
		if _, err := s.api.Keys.Update(t.Context(), alice, key.ID, apikeys.UpdateParams{Name: &name}); err != nil {
			t.Fatal(err)
		}
	}
	first := s.get("audit-log?target=" + key.ID)
	if n := strings.Count(first.body, ">Key changed</span>"); n != 50 {
		t.Errorf("%d on the first page", n)
	}
	second := s.get(first.leadsTo("Older"))
	if n := strings.Count(second.body, ">Key changed</span>"); n != 10 || !strings.Contains(second.body, "Key created") {
		t.Errorf("%d on the second page", n)
	}
}

func TestAuditLog_WithoutPermission_IsForbidden(t *testing.T) {
	s := newSite(t, storageapi.Config{})
	s.pages = s.mount(dashboard.Config{May: func(_ *http.Request, action auth.Action) bool { return action != auth.ReadAudit }})
	s.get("audit-log").want(http.StatusForbidden)
	s.get("api-keys").hides("audit-log")
}

// Users can find the deletion of a key by the key's name and by the actor.
func TestAuditLog_DeletedKey_IsFoundByNameAndActor(t *testing.T) {
	s := newSite(t, storageapi.Config{})
	s.pages = s.mount(dashboard.Config{Logger: slog.New(slog.DiscardHandler), Actor: func(*http.Request) string { return "ada@example.com" }})
	ci, token, err := s.api.Keys.Create(t.Context(), alice, apikeys.CreateParams{Name: "CI pipeline", Scopes: s.api.Keys.Scopes().All()})
	if err != nil {
		t.Fatal(err)
	}
	value := token.Reveal()
	old, _ := s.key(alice, "backup of old", time.Time{})
	kept, _ := s.key(alice, "kept", time.Time{})
	hook, err := s.api.Webhooks.Create(t.Context(), alice, webhooks.CreateParams{URL: "https://example.com/secret", Events: alerts.EventTypes()})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(t.Context(), "DELETE", "/v2/api-keys/"+old.ID, nil)
	r.Header.Set("Api-Key", value)
	w := httptest.NewRecorder()
	if s.api.ServeHTTP(w, r); w.Code != http.StatusNoContent {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	s.post("webhooks/"+hook.ID+"/delete", s.get("webhooks/"+hook.ID+"/delete").form()).want(http.StatusSeeOther)
	s.post("api-keys/"+ci.ID+"/revoke", s.get("api-keys/"+ci.ID+"/revoke").form()).want(http.StatusSeeOther)

	who := "API key “CI pipeline” " + ci.Hint
	s.get("audit-log").says("Key revoked backup of old "+old.Hint+" "+who, "Webhook deleted https://example.com", "Key created kept").hides("/secret", value)
	s.get("audit-log?target="+old.ID).says("API keys / backup of old", "Key revoked "+old.Hint+" "+who)

	for _, text := range []string{"old", old.ID, strings.ToUpper(old.Hint[len(old.Hint)-4:])} { // each matches only this key
		found := s.post("search", url.Values{"q": {text}})
		for found.status == http.StatusSeeOther {
			found = s.follow(found)
		}
		found.want(http.StatusOK).says("Key revoked", who)
		if !strings.Contains(found.at.RequestURI(), "audit-log?target="+old.ID) {
			t.Errorf("searching for %q leads to %s", text, found.at)
		}
	}
	s.get("search?q=p").says("Deleted", "backup of old "+old.ID+" "+old.Hint+" Key revoked by API key “CI pipeline”", "API keys kept").hides("/secret")

	filter := func(fields ...string) *page {
		t.Helper()
		form := make(url.Values)
		for i := 0; i < len(fields); i += 2 {
			form.Set(fields[i], fields[i+1])
		}
		return s.follow(s.post("audit-log", form)).want(http.StatusOK)
	}
	filter("action", "key.deleted").says("Key revoked backup of old", "Key revoked CI pipeline").hides("https://example.com", "kept")
	filter("who", "pipeline").says("Key revoked backup of old").hides("ada@example.com", "kept")
	filter("who", value).says("Key revoked backup of old").hides("ada@example.com", "kept", value)
	filter("who", "ADA@", "action", "key.deleted").says("Key revoked CI pipeline").hides("backup of old")
	filter("who", "ada@", "target", old.ID).says("No matches", "show everything")
	filter("from", "2999-01-01T00:00").says("No matches")
	filter("to", "2020-01-01T00:00").says("No matches")
	filter("from", "2020-01-01T00:00", "to", "2999-01-01T00:00", "who", kept.ID).says("No matches")
	s.get("audit-log?from=2021-01-01&to=2020-01-01").want(http.StatusUnprocessableEntity).says("Must be after “From”.")
	s.get("audit-log?from=soon").want(http.StatusUnprocessableEntity)
	secret := s.post("audit-log", url.Values{"who": {"8f14e45fceea167a5a36dedd4bea2543"}}).want(http.StatusOK).says("No matches")
	if to := secret.header.Get("Location"); to != "" {
		t.Errorf("what could be a secret is in the address: %s", to)
	}
}

// A filter by actor must examine entries beyond the first page.
func TestAuditLog_FilteredByActor_ContinuesOverPages(t *testing.T) {
	s := newSite(t, storageapi.Config{})
	key, _ := s.key(alice, "0", time.Time{})
	for i := range 1200 {
		ctx := audit.WithActor(t.Context(), audit.Actor{Kind: audit.ActorPerson, ID: []string{"ada", "bea"}[min(i/600, 1)]})
		if _, err := s.api.Keys.Update(ctx, alice, key.ID, apikeys.UpdateParams{Name: new(fmt.Sprint("n", i))}); err != nil {
			t.Fatal(err)
		}
	}
	seen := 0
	at := s.get("audit-log?who=ada&action=key.changed").want(http.StatusOK)
	for range 100 {
		at.hides(">bea<")
		seen += strings.Count(at.body, ">Key changed</span>")
		if !strings.Contains(at.body, "after=") {
			break
		}
		label := "Older"
		if !strings.Contains(at.body, ">Older<") {
			label = "Search older"
		}
		at = s.get(at.leadsTo(label)).want(http.StatusOK)
	}
	if seen != 600 {
		t.Errorf("%d changes by ada, want 600", seen)
	}
}
