package dashboard_test

import (
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/memory"
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
	for scope := range scopes.All().All() {
		list = append(list, scope)
	}
	return list
}
