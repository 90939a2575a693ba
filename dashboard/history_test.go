package dashboard_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/dashboard"
	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/webhooks"
)

// TestHistory changes keys and webhooks by the pages and otherwise, and reads who did what.
func TestHistory(t *testing.T) {
	s := newSite(t, storageapi.Config{Webhooks: webhooks.Config{AllowHosts: []string{"example.com"}}})
	s.pages = s.mount(dashboard.Config{Logger: slog.New(slog.DiscardHandler), Actor: func(*http.Request) string { return "ada@example.com" }})
	s.get("history").want(http.StatusOK).says("Nothing yet")

	by := func(actor notices.Actor) context.Context {
		return notices.WithRequest(notices.WithActor(t.Context(), actor), "req-7", "2001:db8::7")
	}
	key, _, err := s.api.Keys.Create(by(notices.Actor{Kind: notices.ActorKey, ID: "key_parent"}), alice, apikeys.CreateParams{Name: "a key", Scopes: s.api.Keys.Scopes().All()})
	if err != nil {
		t.Fatal(err)
	}
	other, _ := s.key(alice, "another", time.Time{})
	s.post("api-keys/"+key.ID, s.get("api-keys/"+key.ID).form("name", "b")).want(http.StatusSeeOther)
	hook, err := s.api.Webhooks.Create(t.Context(), alice, webhooks.CreateParams{URL: "https://example.com/secret", Events: webhooks.EventTypes()})
	if err != nil {
		t.Fatal(err)
	}
	s.post("webhooks/"+hook.ID+"/turn", s.get("webhooks/"+hook.ID).form("to", "off")).want(http.StatusSeeOther)
	recovery, err := s.api.Webhooks.Recover(t.Context(), alice, hook.ID, webhooks.RecoverParams{})
	if err != nil {
		t.Fatal(err)
	}
	s.post("api-keys/"+other.ID+"/revoke", s.get("api-keys/"+other.ID+"/revoke").form()).want(http.StatusSeeOther)

	all := s.get("history").says("Key created", "key_parent", "2001:db8::7", "req-7", "Key changed : name", "ada@example.com", "Webhook created",
		"Webhook changed : on/off state", "Missed events resent : "+recovery.ID, "Key revoked", "The service").hides("another")
	if strings.Contains(all.body, "api-keys/"+other.ID) || !strings.Contains(all.body, ">b</a>") || !strings.Contains(all.body, "history?target="+other.ID) {
		t.Errorf("it does not lead to what is there:\n%s", all.body)
	}
	s.get("history?target="+key.ID).says("Key created", "Key changed").hides(hook.ID, other.ID)
	s.get("history?target="+hook.ID).says("Webhook created").hides(key.ID, "Key created")
	s.get("history?target="+other.ID).says("Key created", "Key revoked") // of what is gone, too
	if !strings.Contains(s.get("api-keys/"+key.ID).body, "history?target="+key.ID) || !strings.Contains(s.get("webhooks/"+hook.ID).body, "history?target="+hook.ID) {
		t.Error("the pages do not lead to their history")
	}
	for _, target := range []string{"x", "evt_1", "key", strings.Repeat("key_", 99)} {
		s.get("history?target=" + target).want(http.StatusNotFound)
	}
	s.account = bob
	s.get("history").says("Nothing yet")
	s.get("history?target=" + key.ID).says("Nothing yet")
}

// TestHistoryPages lists more than one page.
func TestHistoryPages(t *testing.T) {
	s := newSite(t, storageapi.Config{})
	key, _ := s.key(alice, "0", time.Time{})
	for i := range 60 {
		name := fmt.Sprint("n", i)
		if _, err := s.api.Keys.Update(t.Context(), alice, key.ID, apikeys.UpdateParams{Name: &name}); err != nil {
			t.Fatal(err)
		}
	}
	first := s.get("history?target=" + key.ID)
	if n := strings.Count(first.body, "Key changed"); n != 50 {
		t.Errorf("%d on the first page", n)
	}
	second := s.get(first.leadsTo("Older"))
	if n := strings.Count(second.body, "Key changed"); n != 10 || !strings.Contains(second.body, "Key created") {
		t.Errorf("%d on the second page", n)
	}
}

// TestWhoMayReadHistory: it needs its own permission.
func TestWhoMayReadHistory(t *testing.T) {
	s := newSite(t, storageapi.Config{})
	s.pages = s.mount(dashboard.Config{May: func(_ *http.Request, action auth.Action) bool { return action != auth.ReadAudit }})
	s.get("history").want(http.StatusForbidden)
	s.get("api-keys").hides("history")
}
