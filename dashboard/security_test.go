package dashboard_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/dashboard"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/capability"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// steps returns requests to all routes for a key, a webhook, an event and a recovery.
func steps(key, webhook, event, recovery string) []struct{ method, path string } {
	return []struct{ method, path string }{
		{"GET", "api-keys/" + key},
		{"POST", "api-keys/" + key},
		{"GET", "api-keys/" + key + "/rotate"},
		{"POST", "api-keys/" + key + "/rotate"},
		{"GET", "api-keys/" + key + "/revoke"},
		{"POST", "api-keys/" + key + "/revoke"},
		{"GET", "webhooks/" + webhook},
		{"GET", "webhooks/" + webhook + "/edit"},
		{"POST", "webhooks/" + webhook + "/edit"},
		{"GET", "webhooks/" + webhook + "/turn"},
		{"POST", "webhooks/" + webhook + "/turn"},
		{"GET", "webhooks/" + webhook + "/pause"},
		{"POST", "webhooks/" + webhook + "/pause"},
		{"POST", "webhooks/" + webhook + "/test"},
		{"GET", "webhooks/" + webhook + "/rotate"},
		{"POST", "webhooks/" + webhook + "/rotate"},
		{"GET", "webhooks/" + webhook + "/deliveries"},
		{"GET", "webhooks/" + webhook + "/deliveries/" + event},
		{"POST", "webhooks/" + webhook + "/deliveries/" + event},
		{"POST", "webhooks/" + webhook + "/deliveries"},
		{"GET", "events/" + event},
		{"GET", "webhooks/" + webhook + "/recover"},
		{"POST", "webhooks/" + webhook + "/recover"},
		{"GET", "webhooks/" + webhook + "/recoveries/" + recovery},
		{"GET", "webhooks/" + webhook + "/delete"},
		{"POST", "webhooks/" + webhook + "/delete"},
	}
}

// allFields returns a form with every field that a route requires.
func allFields() url.Values {
	return url.Values{
		"name": {"stolen"}, "scopes": {"files:read"}, "expiry": {"never"}, "grace": {"0s"}, "version": {"x"}, "to": {"off"}, "for": {"never"},
		"url": {"https://example.com/stolen"}, "events": {"balance.low"}, "state": {"dead"}, "event": {"evt_1"},
	}
}

// untouchable is a store without methods, so that any call to the store fails the test.
type untouchable struct{ store.Store }

func (untouchable) Capabilities() capability.Set { return capability.Set{} }

func TestNoAccount(t *testing.T) {
	api, err := storageapi.NewHandler(storageapi.Config{Store: untouchable{}})
	if err != nil {
		t.Fatal(err)
	}
	paths := []struct{ method, path string }{
		{"GET", ""}, {"GET", "api-keys"}, {"GET", "api-keys/new"}, {"POST", "api-keys/new"}, {"GET", "webhooks"},
		{"GET", "webhooks/new"}, {"POST", "webhooks/new"}, {"GET", "events"}, {"GET", "nothing"}, {"DELETE", "api-keys"},
	}
	paths = append(paths, steps("key_1", "wh_1", "evt_1", "rec_1")...)
	for name, account := range map[string]func(*http.Request) (string, error){
		"none":  func(*http.Request) (string, error) { return "", nil },
		"long":  func(*http.Request) (string, error) { return strings.Repeat("a", 129), nil },
		"odd":   func(*http.Request) (string, error) { return "a\xff", nil },
		"error": func(*http.Request) (string, error) { return alice, errors.New("the session has ended") },
	} {
		pages, err := dashboard.New(dashboard.Config{API: api, Account: account, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		s := &site{TB: t, pages: pages, root: "/settings/"}
		for _, p := range paths {
			r := s.formRequest(p.path, allFields(), "same-origin")
			r.Method = p.method
			got := s.do(r)
			if got.status != http.StatusForbidden || got.body != "403: sign in to see these pages.\n" {
				t.Errorf("%s: %s %s: %d %s", name, p.method, p.path, got.status, got.body)
			}
			checkHeader(t, got)
		}
	}
}

func checkHeader(t testing.TB, p *page) {
	t.Helper()
	want := map[string]string{
		"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
			"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
		"Cache-Control":                "no-store",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
		"Referrer-Policy":              "same-origin",
		"X-Content-Type-Options":       "nosniff",
		"X-Frame-Options":              "DENY",
	}
	if strings.Contains(p.at.Path, "/assets/") && p.status == http.StatusOK {
		want["Cache-Control"] = "private, max-age=31536000, immutable"
	}
	for name, value := range want {
		if got := p.header.Get(name); got != value {
			t.Errorf("%s: %s: got %q", p.at, name, got)
		}
	}
	if _, ok := p.header["Set-Cookie"]; ok {
		t.Errorf("%s: sets a cookie", p.at)
	}
}

// inline matches markup that the Content-Security-Policy blocks.
var inline = regexp.MustCompile(`(?i)<style|\sstyle=|\son\w+=|<script(?:>|\s[^>]*[^"]>)|javascript:|<base|<iframe|https?://`)

func TestHeaders(t *testing.T) {
	s := newSite(t, storageapi.Config{})
	key, _ := s.key(alice, "a key", time.Time{})
	for _, path := range []string{
		"", "api-keys", "api-keys/new", "api-keys/" + key.ID, "api-keys/" + key.ID + "/rotate", "api-keys/" + key.ID + "/revoke",
		"webhooks", "nothing", "assets/nothing",
	} {
		got := s.get(path)
		checkHeader(t, got)
		if found := inline.FindString(got.body); found != "" {
			t.Errorf("%s: holds %q", path, found)
		}
		for _, match := range links.FindAllStringSubmatch(got.body, -1) {
			if to, err := got.at.Parse(match[1]); err == nil && strings.Contains(to.Path, "/assets/") {
				checkHeader(t, s.do(httptest.NewRequest("GET", to.String(), nil)).want(http.StatusOK))
			}
		}
	}
	form := s.get("api-keys/new").form("name", "a", "scopes", "files:read", "expiry", "never")
	checkHeader(t, s.post("api-keys/new", form).want(http.StatusOK))
	checkHeader(t, s.post("api-keys/new", nil).want(http.StatusUnprocessableEntity))
}

func TestCrossOrigin(t *testing.T) {
	s := newSite(t, storageapi.Config{})
	key, token := s.key(alice, "a key", time.Time{})
	webhook, err := s.api.Webhooks.Create(t.Context(), alice, webhooks.CreateParams{URL: "https://example.com/", Events: alerts.EventTypes()})
	if err != nil {
		t.Fatal(err)
	}
	paths := steps(key.ID, webhook.ID, "evt_1", "rec_1")
	paths = append(paths, struct{ method, path string }{"POST", "api-keys/new"}, struct{ method, path string }{"POST", "webhooks/new"})
	for _, p := range paths {
		if p.method != "POST" {
			continue
		}
		for _, from := range []string{"cross-site", "same-site"} {
			got := s.do(s.formRequest(p.path, allFields(), from)).want(http.StatusForbidden).says("Another site sent this request.")
			checkHeader(t, got)
		}
		r := s.formRequest(p.path, allFields(), "") // older browsers do not send Sec-Fetch-Site
		r.Header.Set("Origin", "https://evil.example")
		s.do(r).want(http.StatusForbidden)
	}
	after, err := s.api.Webhooks.Get(t.Context(), alice, webhook.ID)
	if keys := s.keys(); len(keys) != 1 || keys[0].Name != "a key" || !s.valid(token) || err != nil || !after.Active || after.URL != webhook.URL {
		t.Errorf("something was changed: %+v, %+v", keys, after)
	}
}

// The dashboard must treat IDs of another account like unknown IDs.
func TestOtherAccount(t *testing.T) {
	s := newSite(t, storageapi.Config{})
	key, token := s.key(alice, "of alice", time.Time{})
	webhook, err := s.api.Webhooks.Create(t.Context(), alice, webhooks.CreateParams{URL: "https://example.com/alice", Events: alerts.EventTypes()})
	if err != nil {
		t.Fatal(err)
	}
	event := webhooks.Event{ID: "evt_of_alice", Account: alice, Data: alerts.BalanceLow{Balance: 1, Threshold: 2}}
	if err := s.api.Webhooks.Publish(t.Context(), event); err != nil {
		t.Fatal(err)
	}
	recovery, err := s.api.Webhooks.Recover(t.Context(), alice, webhook.ID, webhooks.RecoverParams{})
	if err != nil {
		t.Fatal(err)
	}
	theirs := steps(key.ID, webhook.ID, event.ID, recovery.ID)
	never := steps("key_01JZ5T3K9QWERTYASDFGHZXCVB", "wh_01JZ5T3K9QWERTYASDFGHZXCVB", "evt_1", "rec_01JZ5T3K9QWERTYASDFGHZXCVB")
	odd := steps("%00", "%FF", strings.Repeat("x", 129), "a%2Fb")
	s.account = bob
	for i := range theirs {
		var answers []string
		for _, p := range []struct{ method, path string }{theirs[i], never[i], odd[i]} {
			r := s.formRequest(p.path, allFields(), "same-origin")
			r.Method = p.method
			got := s.do(r)
			if got.status != http.StatusNotFound {
				t.Errorf("%s %s: %d", p.method, p.path, got.status)
			}
			checkHeader(t, got)
			answers = append(answers, got.text())
		}
		if answers[0] != answers[1] || answers[0] != answers[2] {
			t.Errorf("%s %s: not the same as what never was: %q", theirs[i].method, theirs[i].path, answers)
		}
	}
	s.get("api-keys?after=" + key.ID).want(http.StatusOK).hides("of alice")
	s.get("webhooks?after=" + webhook.ID).want(http.StatusOK).hides("example.com/alice")
	s.account = alice
	after, err := s.api.Webhooks.Get(t.Context(), alice, webhook.ID)
	if keys := s.keys(); len(keys) != 1 || keys[0].Name != "of alice" || !s.valid(token) || err != nil || !after.Active {
		t.Errorf("something was changed: %+v, %+v", keys, after)
	}
	for _, p := range theirs { // the other account's objects must still exist
		if p.method == "GET" {
			s.get(p.path).want(http.StatusOK)
		}
	}
}

const markup = `"><script>alert(1)</script><img src=x onerror=alert(1)>'{{.}}</title></textarea>&lt;`

func TestPages_MarkupInInput_IsShownAsText(t *testing.T) {
	s := newSite(t, storageapi.Config{})
	key, _ := s.key(alice, markup, time.Time{})
	s.account = alice
	pages := []*page{
		s.get("api-keys"), s.get("api-keys/" + key.ID), s.get("api-keys/" + key.ID + "/rotate"), s.get("api-keys/" + key.ID + "/revoke"),
		s.post("api-keys/"+key.ID, url.Values{"name": {markup + "\x00"}}), s.post("api-keys/new", url.Values{"name": {markup}, "nonce": {markup}, "date": {markup}, "expiry": {"date"}}),
		s.post("webhooks/new", url.Values{"url": {markup}, "nonce": {markup}, "threshold": {markup}}),
	}
	for _, p := range pages {
		checkMarkup(t, p)
	}
}

// checkMarkup checks that the page shows the markup as text.
func checkMarkup(t *testing.T, p *page) {
	t.Helper()
	if strings.Contains(p.body, "<script>") || strings.Contains(p.body, "<img") {
		t.Errorf("%s: markup in:\n%s", p.at, p.body)
	}
	if !strings.Contains(p.body, "&lt;script&gt;alert(1)&lt;/script&gt;") {
		t.Errorf("%s: the text is not in:\n%s", p.at, p.body)
	}
}

func TestBadForms(t *testing.T) {
	s := newSite(t, storageapi.Config{})
	s.post("api-keys/new", url.Values{"name": {strings.Repeat("a", 70<<10)}}).want(http.StatusRequestEntityTooLarge)
	r := s.formRequest("api-keys/new", nil, "same-origin")
	r.URL.RawQuery = "a;b"
	s.do(r).want(http.StatusBadRequest)
}

// Errors must be logged but not shown.
func TestFailure(t *testing.T) {
	var log strings.Builder
	s := newSite(t, storageapi.Config{Store: failing{memory.New()}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	s.get("api-keys").want(http.StatusInternalServerError).says("Something went wrong").hides("the disk is gone")
	if !strings.Contains(log.String(), "the disk is gone") || !strings.Contains(log.String(), "GET /settings/api-keys") {
		t.Errorf("logged: %s", &log)
	}
}

type failing struct{ store.Store }

func (failing) ListKeys(context.Context, string, driver.ListQuery) ([]apikeys.Key, error) {
	return nil, errors.New("the disk is gone")
}
