package dashboard_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

func TestOwnScopes(t *testing.T) {
	store := memory.New()
	s := newSite(t, storageapi.Config{Store: store, Scopes: []scopes.Declaration{
		{Scope: "teams:read", Description: "List teams"}, {Scope: "files:share", Description: "Share files"},
	}})
	form := s.get("api-keys/new").says(
		"Files List, retrieve, download files files:read Upload and delete files files:write Share files files:share Members",
		"Teams List teams teams:read",
	).form("name", "a", "scopes", "teams:read", "scopes", "files:read", "expiry", "never")
	s.post("api-keys/new", form).want(200)
	key := s.keys()[0]
	if want := scopes.Of("teams:read", scopes.FilesRead); key.Scopes != want {
		t.Errorf("the key has %q, want %q", key.Scopes, want)
	}
	s.get("api-keys/"+key.ID).says("List teams teams:read", "List, retrieve, download files files:read")
	s.key(alice, "all", time.Time{}, append(s.scopes(), "teams:read", "files:share")...)
	s.get("api-keys").says("All scopes")

	s = newSite(t, storageapi.Config{Store: store})
	s.get("api-keys/" + key.ID).says("List, retrieve, download files files:read No longer available: allows nothing teams:read")
	s.get("api-keys/new").hides("teams:read")
}

func (s *site) scopes() (list []scopes.Scope) {
	for scope := range scopes.Specified().All() {
		list = append(list, scope)
	}
	return list
}

func TestHideScopes_FormAndFilter_OmitThem(t *testing.T) {
	store := memory.New()
	s := newSite(t, storageapi.Config{Store: store})
	key, token := s.key(alice, "a", time.Time{}, scopes.AggregatorsRead)

	s = newSite(t, storageapi.Config{Store: store, HideScopes: []scopes.Scope{scopes.AggregatorsRead, scopes.AggregatorsWrite, scopes.FilesRead}})
	s.get("api-keys/new").says("Files Upload and delete files files:write Members").hides("ggregators", "files:read")
	s.get("webhooks/new").hides("files.expiring")
	form := s.get("api-keys/new").form("name", "b", "scopes", "aggregators:read", "expiry", "never")
	s.post("api-keys/new", form).want(http.StatusUnprocessableEntity).says("Select at least one scope")
	s.get("api-keys/" + key.ID).says("Read aggregator configuration aggregators:read")
	if !s.valid(token) {
		t.Error("a key with a hidden scope does not work")
	}
	s.post("api-keys/"+key.ID+"/revoke", nil)
	s.get("api-keys").hides("ggregators")
}

func TestHideEvents_Balance_HidesThresholds(t *testing.T) {
	store := memory.New()
	before := newSite(t, storageapi.Config{Store: store})
	form := before.get("webhooks/new").form("url", "https://example.com/", "events", "files.expiring", "threshold", "12.5")
	before.post("webhooks/new", form).want(http.StatusOK)
	webhook := before.webhooks()[0]
	before.get("webhooks/" + webhook.ID).says("Balance threshold 12.5 SUI")

	s := newSite(t, storageapi.Config{Store: store, Alerts: alerts.Config{HideEvents: []webhooks.EventType{alerts.TypeBalanceLow}}})
	for _, page := range []string{"webhooks", "webhooks/new", "webhooks/" + webhook.ID, "webhooks/" + webhook.ID + "/edit"} {
		s.get(page).want(http.StatusOK).hides("alance", "threshold", "SUI")
	}
	edit := s.get("webhooks/"+webhook.ID+"/edit").form("url", "https://example.com/elsewhere", "events", "files.expiring")
	s.post("webhooks/"+webhook.ID+"/edit", edit).want(http.StatusSeeOther)
	if got := s.webhooks()[0]; got.Threshold != webhook.Threshold || got.URL != "https://example.com/elsewhere" {
		t.Errorf("editing changed the threshold: %+v", got)
	}
}

func TestUnit_OtherUnit_IsShown(t *testing.T) {
	s := newSite(t, storageapi.Config{Alerts: alerts.Config{Unit: "credits"}})
	form := s.get("webhooks/new").says("credits").hides("SUI").form("url", "https://example.com/", "events", "balance.low", "threshold", "much")
	s.post("webhooks/new", form).want(http.StatusUnprocessableEntity).says("Must be a decimal amount of credits")
	form.Set("threshold", "12.5")
	s.post("webhooks/new", form).want(http.StatusOK)
	s.get("webhooks/" + s.webhooks()[0].ID).says("Balance threshold 12.5 credits").hides("SUI")
}
