package dashboard_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/webhooks"
)

// TestResources limits a key and a webhook in their forms, changes the webhook's limit, and checks
// that all pages show resources.
func TestResources(t *testing.T) {
	s := newSite(t, storageapi.Config{Webhooks: webhooks.Config{Outbound: webhooks.Outbound{AllowHosts: []string{"example.com"}}}})
	key := s.get("api-keys/new").form("name", "a", "scopes", "files:read", "expiry", "never", "resources", " b1  <b2> b1 ")
	s.post("api-keys/new", key).want(http.StatusOK)
	if diff := cmp.Diff([]string{"<b2>", "b1"}, s.keys()[0].Resources.Names()); diff != "" {
		t.Errorf("resources of the key (-want +got):\n%s", diff)
	}
	s.get("api-keys").says("only for <b2> b1")
	s.get("api-keys/" + s.keys()[0].ID).says("Limited to <b2> b1")
	key.Set("resources", "é")
	s.post("api-keys/new", key).want(http.StatusUnprocessableEntity).says("Must be 1 to 64 names of 1 to 128 visible ASCII characters each")

	hook := s.get("webhooks/new").form("url", "https://example.com/", "events", "balance.low", "resources", "b1")
	s.post("webhooks/new", hook).want(http.StatusOK)
	page, err := s.api.Webhooks.List(t.Context(), alice, webhooks.WebhookQuery{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	path := "webhooks/" + page.Webhooks[0].ID
	s.get(path).says("Limited to b1")
	s.get("webhooks").says("only for b1")
	edit := func(resources string) {
		t.Helper()
		form := s.get(path+"/edit").form("url", "https://example.com/", "events", "balance.low")
		form.Set("resources", resources)
		s.post(path+"/edit", form).want(http.StatusSeeOther)
	}
	edit("b2 b1")
	s.get(path).says("Limited to b1 b2")
	s.get("audit-log").says("resources")
	edit("")
	s.get(path).hides("Limited to")

	if err := s.api.Webhooks.Publish(t.Context(), webhooks.Event{ID: "evt", Account: alice, Resource: "b3", Data: alerts.BalanceLow{}}); err != nil {
		t.Fatal(err)
	}
	s.get("events").says("balance.low b3")
	s.get("events/evt").says("Resource b3")
	s.get(path + "/deliveries/evt").says("Resource b3")
}
