package dashboard_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/dashboard"
	"github.com/storageapi/storageapi/webhooks"
)

var listedKey = regexp.MustCompile(`api-keys/(key_\w+)"`)

func (s *site) search(query string) *page {
	s.Helper()
	found := s.post("search", url.Values{"q": {query}})
	if to := found.header.Get("Location"); strings.HasPrefix(to, "./search?") {
		return s.follow(found)
	}
	return found
}

// leadsOn checks that a search redirects to a page.
func (p *page) leadsOn(to string) {
	p.Helper()
	if got := p.want(http.StatusSeeOther).header.Get("Location"); got != "./"+to {
		p.Errorf("%s leads to %s, want %s", p.at, got, to)
	}
}

// TestSearch finds keys, webhooks and events by each property that can be searched.
func TestSearch(t *testing.T) {
	s := newSite(t, storageapi.Config{Webhooks: webhooks.Config{Outbound: webhooks.Outbound{AllowHosts: []string{"a.example.com", "b.example.com"}}}})
	backup, token := s.key(alice, "Nightly Backup", time.Time{})
	deploy, _ := s.key(alice, "CI <deploy>", time.Time{})
	var hooks []webhooks.Webhook
	for _, url := range []string{"https://a.example.com/hooks", "https://b.example.com/hooks"} {
		hook, err := s.api.Webhooks.Create(t.Context(), alice, webhooks.CreateParams{URL: url, Events: []webhooks.EventType{alerts.TypeBalanceLow}})
		if err != nil {
			t.Fatal(err)
		}
		hooks = append(hooks, hook)
	}
	event := s.api.Webhooks.NewEventID()
	for id, data := range map[string]webhooks.Data{event: alerts.BalanceLow{Balance: 1, Threshold: 2}, "evt_unheard": alerts.BandwidthLimitReached{UsedBytes: 1, LimitBytes: 1, Period: "2026-11"}} {
		if err := s.api.Webhooks.Publish(t.Context(), webhooks.Event{ID: id, Account: alice, Data: data}); err != nil {
			t.Fatal(err)
		}
	}

	s.search("nightly").leadsOn("api-keys/" + backup.ID)
	s.search(" " + backup.ID + " ").leadsOn("api-keys/" + backup.ID)
	s.search(hooks[1].ID).leadsOn("webhooks/" + hooks[1].ID)
	s.search("B.example").leadsOn("webhooks/" + hooks[1].ID)
	s.search("key_0").want(http.StatusOK).says("Nightly Backup", "CI <deploy>", backup.ID, deploy.ID)
	s.search(backup.ID[:len(backup.ID)-1]).leadsOn("api-keys/" + backup.ID)
	s.search("wh_0").says("https://a.example.com/hooks", "https://b.example.com/hooks")
	s.search("/hooks").says("https://a.example.com/hooks", "https://b.example.com/hooks").hides("Nightly")
	found := s.search(event).want(http.StatusOK).says("Deliveries", "Low balance", event)
	for _, hook := range hooks {
		if !strings.Contains(found.body, "webhooks/"+hook.ID+"/deliveries/"+event) {
			t.Errorf("%s does not lead to the delivery to %s", event, hook.URL)
		}
	}
	s.search("evt_unheard").leadsOn("events/evt_unheard")
	s.search("bandwidth.limit_reached").leadsOn("events?type=bandwidth.limit_reached")
	s.search("limit").says("Event types", "Bandwidth limit reached bandwidth.limit_reached", "Transaction limit reached")
	for _, nothing := range []string{"<script>", "evt_none", "key_01ZZZZZZZZZZZZZZZZZZZZZZZZ", "wh_01ZZZZZZZZZZZZZZZZZZZZZZZZ", "\x00", strings.Repeat("a", 300)} {
		s.search(nothing).want(http.StatusOK).hides("<script>", "Nightly", "a.example")
	}
	s.search("").want(http.StatusOK).says("Find API keys by name, ID or last characters")
	s.get("audit-log?after=none").want(http.StatusOK)
	s.search("<script>").says("No matches", "Results for “<script>”")

	// A search for the value of a key must not put it into a URL.
	s.search(token).leadsOn("api-keys/" + backup.ID)
	s.search(backup.Hint).leadsOn("api-keys/" + backup.ID)

	s.account = bob
	for _, text := range []string{"nightly", backup.ID, "example", hooks[0].ID, event, "key_0"} {
		s.search(text).want(http.StatusOK).says("No matches").hides("Nightly", "a.example", "Low balance")
	}
}

// A search ends at its limits, and says so.
func TestSearchIsBounded(t *testing.T) {
	s := newSite(t, storageapi.Config{Keys: apikeys.Config{MaxPerAccount: 2000}})
	old, _ := s.key(alice, "the oldest of all", time.Time{})
	for i := range 1050 {
		s.key(alice, fmt.Sprint("many ", i), time.Time{})
	}
	s.search("oldest").want(http.StatusOK).says("No matches", "Not everything was searched").hides(old.ID)
	s.search(old.ID).leadsOn("api-keys/" + old.ID)
	s.search("many 77").want(http.StatusOK).says("many 77", "Not everything was searched") // an older key may match, too
	many := s.search("many").want(http.StatusOK).says("many 1049", "many 1030", "Not everything was searched").hides("many 1029")
	if n := len(listedKey.FindAllString(many.body, -1)); n != 20 {
		t.Errorf("%d keys were shown, want 20", n)
	}
}

// Users must find only objects that they may see.
func TestSearch_LimitedUser_FindsOnlyVisibleObjects(t *testing.T) {
	s := newSite(t, storageapi.Config{Webhooks: webhooks.Config{Outbound: webhooks.Outbound{AllowHosts: []string{"example.com"}}}})
	key, _ := s.key(alice, "example", time.Time{})
	hook, err := s.api.Webhooks.Create(t.Context(), alice, webhooks.CreateParams{URL: "https://example.com/", Events: []webhooks.EventType{alerts.TypeBalanceLow}})
	if err != nil {
		t.Fatal(err)
	}
	for only, want := range map[auth.Action]string{auth.ReadKeys: "api-keys/" + key.ID, auth.ReadWebhooks: "webhooks/" + hook.ID} {
		s.pages = s.mount(dashboard.Config{May: func(_ *http.Request, action auth.Action) bool { return action == only }})
		s.search("example").leadsOn(want)
	}
	s.pages = s.mount(dashboard.Config{May: func(*http.Request, auth.Action) bool { return false }})
	s.search("example").want(http.StatusOK).says("No matches").hides(`role="search"`)
}
