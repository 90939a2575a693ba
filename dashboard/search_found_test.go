package dashboard_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/dashboard"
	"github.com/storageapi/storageapi/webhooks"
)

// TestSearchForLongText finds what is as long as the field takes, and names in any script.
func TestSearchForLongText(t *testing.T) {
	s := newSite(t, storageapi.Config{Webhooks: webhooks.Config{AllowHosts: []string{"example.com"}}})
	address := "https://example.com/" + strings.Repeat("a", 170)
	hook, err := s.api.Webhooks.Create(t.Context(), alice, webhooks.CreateParams{URL: address, Events: []webhooks.EventType{webhooks.TypeBalanceLow}})
	if err != nil {
		t.Fatal(err)
	}
	s.search(address).leadsOn("webhooks/" + hook.ID)
	key, _ := s.key(alice, strings.Repeat("鍵", 128), time.Time{})
	s.search(key.Name).leadsOn("api-keys/" + key.ID)
}

// TestSearchShowsTheOnlyOne at once, and not one of several: of those on the page before, and of
// those that have not been looked for yet.
func TestSearchShowsTheOnlyOne(t *testing.T) {
	s := newSite(t, storageapi.Config{Keys: apikeys.Config{MaxPerAccount: 2000}, Webhooks: webhooks.Config{MaxPerAccount: 2000, AllowHosts: []string{"many.example.com", "late.example.com"}}})
	for i := range 21 {
		s.key(alice, fmt.Sprint("each ", i), time.Time{})
	}
	s.get(s.search("each").leadsTo("Search older")).want(http.StatusOK).says("each 0").hides("each 1")

	for i := range 1001 {
		address := "https://many.example.com/"
		if i == 0 {
			address = "https://late.example.com/"
		}
		if _, err := s.api.Webhooks.Create(t.Context(), alice, webhooks.CreateParams{URL: address, Events: []webhooks.EventType{webhooks.TypeBalanceLow}}); err != nil {
			t.Fatal(err)
		}
	}
	s.key(alice, "the late one", time.Time{})
	page := s.search("late").want(http.StatusOK).says("the late one")
	s.get(page.leadsTo("Search older")).want(http.StatusOK).says("https://late.example.com/")
}

// TestSearchOfEventsIsBounded shows some events at a time, each of them in the end.
func TestSearchOfEventsIsBounded(t *testing.T) {
	s := newSite(t, storageapi.Config{Webhooks: webhooks.Config{AllowHosts: []string{"example.com"}}})
	for range 3 {
		if _, err := s.api.Webhooks.Create(t.Context(), alice, webhooks.CreateParams{URL: "https://example.com/", Events: []webhooks.EventType{webhooks.TypeBalanceLow}}); err != nil {
			t.Fatal(err)
		}
	}
	var ids []string
	for range 60 {
		id := s.api.Webhooks.NewEventID()
		if err := s.api.Webhooks.Publish(t.Context(), webhooks.Event{ID: id, Account: alice, Data: webhooks.BalanceLow{Balance: 1, Threshold: 2}}); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	seen := ""
	page := s.search("evt_0")
	for range 60 {
		if n := strings.Count(page.body, "/deliveries/evt_"); n > 40 {
			t.Fatalf("%d deliveries on a page", n)
		}
		seen += page.body
		if !strings.Contains(page.body, "Search older") {
			break
		}
		page = s.get(page.leadsTo("Search older"))
	}
	for _, id := range ids {
		if !strings.Contains(seen, id) {
			t.Errorf("%s was not found", id)
		}
	}
	for _, parameter := range []string{"keys", "webhooks", "events"} {
		s.get("search?q=evt_0&" + parameter + "=none").want(http.StatusOK)
	}
	s.get("history?after=none").want(http.StatusOK)
}

// TestSearchForAValue: the value of a key is in no address that a page leads to, however it was pasted,
// also where the user has to sign in first.
func TestSearchForAValue(t *testing.T) {
	s := newSite(t, storageapi.Config{})
	_, token := s.key(alice, "a key", time.Time{})
	nobody := func(*http.Request) (string, error) { return "", nil }
	out, err := dashboard.New(dashboard.Config{API: s.api, Account: nobody, SignIn: "/login", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	hint := token[len(token)-10 : len(token)-6]
	for _, text := range []string{token, "Api-Key: " + token, `"` + token + `",`, "KEY=" + token} {
		page := s.search(text).want(http.StatusSeeOther)
		if got := page.header.Get("Location"); got != "./search?q="+hint {
			t.Errorf("%.10s… leads to %s", text, got)
		}
		w := httptest.NewRecorder()
		out.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/settings/search?q="+url.QueryEscape(text), nil))
		if got, want := w.Header().Get("Location"), "/login?next="+url.QueryEscape("/settings/search?q="+hint); got != want {
			t.Errorf("%.10s… leads to %s, want %s", text, got, want)
		}
	}
}

// TestSearchOfWhatOneMaySee ends: what is not searched has no older part.
func TestSearchOfWhatOneMaySee(t *testing.T) {
	s := newSite(t, storageapi.Config{})
	s.pages = s.mount(dashboard.Config{May: func(_ *http.Request, action auth.Action) bool { return action == auth.ReadKeys }})
	s.search("nothing").want(http.StatusOK).says("No matches").hides("Search older")
}
