package dashboard_test

import (
	"net/http"
	"testing"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/dashboard"
)

// The actor of a change must be the person that Config.Actor names, or the host if it returns "". A
// form field must not be able to set the actor.
func TestActor(t *testing.T) {
	for name, want := range map[string]audit.Actor{
		"mia": {Kind: audit.ActorPerson, ID: "mia"},
		"":    {Kind: audit.ActorHost},
	} {
		s := newSite(t, storageapi.Config{})
		s.pages = s.mount(dashboard.Config{Actor: func(*http.Request) string { return name }})
		form := s.get("api-keys/new").form("name", "a", "scopes", "files:read", "expiry", "never")
		form.Set("actor", "somebody")
		s.post("api-keys/new", form).want(http.StatusOK)
		page, err := s.api.Audit.List(t.Context(), alice, audit.Query{Limit: 9})
		if err != nil || len(page.Entries) != 1 {
			t.Fatalf("%v, %v", page, err)
		}
		if n := page.Entries[0]; n.Actor != want || n.Action != audit.KeyCreated || n.ClientAddress != "192.0.2.1" {
			t.Errorf("%+v, want actor %v", n, want)
		}
	}
}
