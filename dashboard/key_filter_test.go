package dashboard_test

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/internal/testclock"
	"github.com/storageapi/storageapi/scopes"
)

// TestFilterKeys filters keys by name, by scope, by how long they have been unused, and by all
// three.
func TestFilterKeys(t *testing.T) {
	clock := testclock.At(noon)
	s := newSite(t, storageapi.Config{Keys: apikeys.Config{Now: clock.Now}})
	s.get("api-keys").says("No API keys yet").hides("Unused for")
	s.get("api-keys?name=a").says("No matching keys", "show all keys").hides("No API keys yet")
	s.key(alice, "Deploy EU", noon.Add(30*24*time.Hour), scopes.FilesRead, scopes.FilesWrite)
	_, used := s.key(alice, "deploy US", time.Time{})
	clock.Add(31 * 24 * time.Hour)
	s.valid(used)
	s.key(alice, "backup", clock.Now().Add(15*24*time.Hour))

	for query, want := range map[string]string{
		"":                               "Deploy EU,deploy US,backup",
		"name=+DEPLOY+":                  "Deploy EU,deploy US",
		"scope=files:write":              "Deploy EU",
		"unused=30":                      "Deploy EU",
		"unused=90":                      "",
		"expires=0":                      "Deploy EU",
		"expires=14":                     "Deploy EU",
		"expires=90":                     "Deploy EU,backup",
		"expires=90&unused=30":           "Deploy EU",
		"name=us&scope=files:read":       "deploy US",
		"name=us&scope=files:write":      "",
		"name=&scope=&unused=&expires=":  "Deploy EU,deploy US,backup",
		"scope=nope&unused=31&expires=1": "Deploy EU,deploy US,backup",
	} {
		page := s.get("api-keys?" + query).want(http.StatusOK)
		for _, name := range []string{"Deploy EU", "deploy US", "backup"} {
			if strings.Contains(want, name) {
				page.says(name)
			} else {
				page.hides(name)
			}
		}
	}
	chosen := s.get("api-keys?name=us&scope=files:read&unused=365").says("No matching keys", "Clear")
	for _, want := range []string{`value="us"`, `<option selected>files:read`, `<option value="365" selected>`} {
		if !strings.Contains(chosen.body, want) {
			t.Errorf("%s is not chosen in %s", want, chosen.body)
		}
	}
	s.get("api-keys?name=" + strings.Repeat("a", 129)).want(http.StatusUnprocessableEntity).says("Must be at most 128 characters").hides("No matching")
	hostile := s.get(`api-keys?after=key_1&name=` + url.QueryEscape(`"><b>&scope=files:write`)).hides("<b>")
	if want := `api-keys?name=%22%3E%3Cb%3E%26scope%3Dfiles%3Awrite"`; !strings.Contains(hostile.body, want) {
		t.Errorf("no link %s in %s", want, hostile.body)
	}
}

// TestFilterKeyPages checks that the next page keeps the filters, even if List has examined as many
// keys as it may.
func TestFilterKeyPages(t *testing.T) {
	s := newSite(t, storageapi.Config{Keys: apikeys.Config{MaxPerAccount: -1}})
	for i := range 51 {
		s.key(alice, fmt.Sprintf("wanted %02d", i), time.Time{})
	}
	for range 1000 {
		s.key(alice, "other", time.Time{})
	}
	next := func(p *page) *page {
		t.Helper()
		_, link, found := strings.Cut(p.body, `api-keys?name=wanted&amp;after=`)
		if !found {
			t.Fatalf("no link to the next page: %s", p.body)
		}
		after, _, _ := strings.Cut(link, `"`)
		return s.get("api-keys?name=wanted&after=" + html.UnescapeString(after))
	}
	first := s.get("api-keys?name=wanted").says("No matches so far", "Search older")
	second := next(first).says("wanted 50", "wanted 01", "1–50 of 51", "Newest", "Older").hides("wanted 00")
	next(second).says("wanted 00", "51 of 51").hides("wanted 01", "Older")
}
