package dashboard_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/dashboard"
	"github.com/storageapi/storageapi/webhooks"
)

// opened maps paths of pages to the targets of their forms. It contains the pages with forms that
// change the given key, webhook or event.
func opened(key, webhook, event string) map[string][]string {
	return map[string][]string{
		"api-keys/new":                                 {"api-keys/new"},
		"api-keys/" + key:                              {"api-keys/" + key},
		"api-keys/" + key + "/rotate":                  {"api-keys/" + key + "/rotate"},
		"api-keys/" + key + "/revoke":                  {"api-keys/" + key + "/revoke"},
		"webhooks/new":                                 {"webhooks/new"},
		"webhooks/" + webhook:                          {"webhooks/" + webhook + "/test", "webhooks/" + webhook + "/turn"},
		"webhooks/" + webhook + "/edit":                {"webhooks/" + webhook + "/edit"},
		"webhooks/" + webhook + "/rotate":              {"webhooks/" + webhook + "/rotate"},
		"webhooks/" + webhook + "/delete":              {"webhooks/" + webhook + "/delete"},
		"webhooks/" + webhook + "/turn":                {"webhooks/" + webhook + "/turn"},
		"webhooks/" + webhook + "/recover":             {"webhooks/" + webhook + "/recover"},
		"webhooks/" + webhook + "/deliveries/" + event: {"webhooks/" + webhook + "/deliveries/" + event},
		"webhooks/" + webhook + "/deliveries":          {"webhooks/" + webhook + "/deliveries"},
		"events/" + event:                              {"webhooks/" + webhook + "/deliveries/" + event},
	}
}

// newOpened returns a site where alice is signed in, and the pages that forms are sent from; see
// opened.
func newOpened(t *testing.T) (s *site, pages map[string][]string) {
	t.Helper()
	s = newSite(t, storageapi.Config{})
	key, _ := s.key(alice, "a key", time.Time{})
	webhook, err := s.api.Webhooks.Create(t.Context(), alice, webhooks.CreateParams{URL: "https://example.com/", Events: alerts.EventTypes()})
	if err != nil {
		t.Fatal(err)
	}
	event := webhooks.Event{ID: "evt_1", Account: alice, Data: alerts.BalanceLow{Balance: 1, Threshold: 2}}
	if err := s.api.Webhooks.Publish(t.Context(), event); err != nil {
		t.Fatal(err)
	}
	return s, opened(key.ID, webhook.ID, event.ID)
}

// state returns a text with everything in an account that forms can change.
func (s *site) state(account string) string {
	s.Helper()
	own := *s
	own.account = account
	hooks, err := s.api.Webhooks.List(s.Context(), account, webhooks.WebhookQuery{Limit: 100})
	if err != nil {
		s.Fatal(err)
	}
	var all strings.Builder
	for _, key := range own.keys() {
		all.WriteString(key.ID + key.Name + string(key.Hash.Sum[:]) + "\n")
	}
	for _, hook := range hooks.Webhooks {
		all.WriteString(hook.ID + hook.URL + hook.Secret.Reveal() + string(hook.OffReason) + fmt.Sprint(hook.Held) + "\n")
	}
	return all.String()
}

// Each form is opened as alice and then sent as bob.
func TestForms_SentFromAnotherAccount_AreRejected(t *testing.T) {
	s, pages := newOpened(t)
	const event = "evt_1"
	for at, actions := range pages {
		s.account = alice
		form := s.get(at).want(http.StatusOK).form("name", "b", "scopes", "files:read", "expiry", "never", "url", "https://example.com/b",
			"events", "balance.low", "grace", "0s", "to", "off", "state", "dead", "event", event)
		if form.Get("account") == "" || strings.Contains(form.Get("account"), alice) {
			t.Errorf("%s: bound to %q", at, form["account"])
		}
		before := s.state(alice) + s.state(bob)
		s.account = bob
		for _, action := range actions {
			s.post(action, form).want(http.StatusConflict).says("You are signed in to another account", "Nothing was changed.", bob)
		}
		if after := s.state(alice) + s.state(bob); after != before {
			t.Errorf("%s: something was changed: %q, before %q", at, after, before)
		}
	}

	// Forms opened and sent in the same account must work.
	s.account = bob
	s.post("api-keys/new", s.get("api-keys/new").form("name", "b", "scopes", "files:read", "expiry", "never")).want(http.StatusOK)
	twice := s.get("api-keys/new").form("name", "b", "scopes", "files:read", "expiry", "never")
	twice.Add("account", twice.Get("account"))
	s.post("api-keys/new", twice).want(http.StatusConflict)
}

// during is a request body that calls happens on each read.
type during struct {
	io.Reader
	happens func()
}

func (d *during) Read(p []byte) (int, error) {
	d.happens()
	return d.Reader.Read(p)
}

// The user signs out, or signs in to another account, while the form arrives.
func TestForms_AccountChangesWhileFormArrives_AreRejected(t *testing.T) {
	s, pages := newOpened(t)
	var ended error
	var account string
	settings, err := dashboard.New(dashboard.Config{API: s.api, Account: func(*http.Request) (string, error) { return account, ended }})
	if err != nil {
		t.Fatal(err)
	}
	s.pages = settings
	for _, actions := range pages {
		for _, action := range actions {
			before := s.state(alice) + s.state(bob)
			send := func(happens func()) *page {
				account, ended = alice, nil
				r := s.formRequest(action, nil, "same-origin")
				r.Body = io.NopCloser(&during{strings.NewReader(url.Values{"name": {"b"}, "to": {"off"}}.Encode()), happens})
				r.ContentLength = -1
				return s.do(r)
			}
			send(func() { account = bob }).want(http.StatusConflict).says("You are signed in to another account")
			if got := send(func() { ended = errors.New("signed out") }).want(http.StatusForbidden); got.body != "403: sign in to see these pages.\n" {
				t.Errorf("%s: got %s", action, got.body)
			}
			if after := s.state(alice) + s.state(bob); after != before {
				t.Errorf("%s: something was changed: %q, before %q", action, after, before)
			}
		}
	}
}
