package dashboard_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/testclock"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/scopes"
)

func TestCreateKey_Limits_AreSetAndShown(t *testing.T) {
	s := newSite(t, storageapi.Config{})
	form := func(networks, rate string) *page {
		return s.post("api-keys/new", s.get("api-keys/new").form("name", "a", "scopes", "files:read", "expiry", "never", "networks", networks, "rate", rate))
	}
	form("192.0.2.1/24", "x").want(http.StatusUnprocessableEntity).says("192.0.2.0/24, not 192.0.2.1/24", "Enter a whole number")
	form("here", "0").want(http.StatusUnprocessableEntity).says("Must be IP networks", "Enter a whole number")
	form("", "1000001").want(http.StatusUnprocessableEntity).says("Must be at most 1000000")
	form(" 192.0.2.0/24,\n2001:db8::1 ", " 30 ").want(http.StatusOK)
	key := s.keys()[0]
	if key.AllowedNetworks != "192.0.2.0/24 2001:db8::1/128" || key.RateLimit != 30 {
		t.Errorf("networks %q, rate %d", key.AllowedNetworks, key.RateLimit)
	}
	s.get("api-keys/"+key.ID).says("192.0.2.0/24 2001:db8::1/128", "30 requests per minute")
}

func TestKeyPage_ShowsUseAndOffersNarrowerKey(t *testing.T) {
	clock := testclock.At(noon)
	s := newSite(t, storageapi.Config{Keys: apikeys.Config{Now: clock.Now}})
	key, token := s.key(alice, "wide", time.Time{}, scopes.FilesRead, scopes.FilesWrite, scopes.SecretsRead)
	s.get("api-keys/"+key.ID).says("3 scopes, 0 used in 90 days.").hides("Create a key with only", "Refused requests")
	use := func(scope scopes.Scope) {
		t.Helper()
		p, err := s.api.Keys.VerifyFrom(t.Context(), token, "192.0.2.7")
		if err != nil {
			t.Fatal(err)
		}
		s.api.Keys.RecordScopes(&p, scopes.Of(scope))
	}
	use(scopes.SecretsRead)
	clock.Add(91 * 24 * time.Hour)
	use(scopes.FilesRead)
	s.api.Keys.RecordRefusal(alice, key.ID, "198.51.100.7", auth.RefusedRequest{Outcome: observe.ScopeMissing, Route: "GET /v2/<x>", Missing: "account:read"})
	clock.Add(3 * time.Minute)
	page := s.get("api-keys/"+key.ID).says("3 scopes, 1 used in 90 days.", "3 minutes ago from 192.0.2.0/24",
		"Refused requests", "Not permitted, 3 minutes ago , from 198.51.100.0/24 GET /v2/<x> missing: account:read")
	s.get("api-keys/" + key.ID + "/revoke").says("It was last used 3 minutes ago from 192.0.2.0/24 .")
	form := s.get(page.leadsTo("Create a key with only this scope")).want(http.StatusOK)
	var checked []string
	for _, part := range strings.Split(form.body, `name="scopes" value="`)[1:] {
		if name, rest, _ := strings.Cut(part, `"`); strings.HasPrefix(rest, " checked") {
			checked = append(checked, name)
		}
	}
	if diff := cmp.Diff([]string{"files:read"}, checked); diff != "" || !strings.Contains(form.body, `value="wide"`) {
		t.Errorf("the form of the successor has these scopes (-want +got):\n%s", diff)
	}
	s.get("api-keys/new?like=key_none").want(http.StatusNotFound)
	s.account = bob
	s.get("api-keys/new?like=" + key.ID).want(http.StatusNotFound)
}
