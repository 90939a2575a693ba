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
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/dashboard"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// steps are requests to all routes about one key, webhook, event and recovery.
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
		{"POST", "webhooks/" + webhook + "/turn"},
		{"POST", "webhooks/" + webhook + "/test"},
		{"GET", "webhooks/" + webhook + "/rotate"},
		{"POST", "webhooks/" + webhook + "/rotate"},
		{"GET", "webhooks/" + webhook + "/deliveries"},
		{"GET", "webhooks/" + webhook + "/deliveries/" + event},
		{"POST", "webhooks/" + webhook + "/deliveries/" + event},
		{"GET", "webhooks/" + webhook + "/recover"},
		{"POST", "webhooks/" + webhook + "/recover"},
		{"GET", "webhooks/" + webhook + "/recoveries/" + recovery},
		{"GET", "webhooks/" + webhook + "/delete"},
		{"POST", "webhooks/" + webhook + "/delete"},
	}
}

// allFields is a form that every route takes.
func allFields() url.Values {
	return url.Values{
		"name": {"stolen"}, "scopes": {"files:read"}, "expiry": {"never"}, "grace": {"0s"}, "version": {"x"}, "to": {"off"},
		"url": {"https://example.com/stolen"}, "events": {"balance.low"}, "state": {"dead"},
	}
}

// A store that is touched fails the test: it has no methods.
type untouchable struct{ store.Store }

func TestNoAccount(t *testing.T) {
	api, err := storageapi.NewHandler(storageapi.Config{Store: untouchable{}})
	if err != nil {
		t.Fatal(err)
	}
	paths := []struct{ method, path string }{
		{"GET", ""}, {"GET", "api-keys"}, {"GET", "api-keys/new"}, {"POST", "api-keys/new"}, {"GET", "webhooks"},
		{"GET", "webhooks/new"}, {"POST", "webhooks/new"}, {"GET", "nothing"}, {"DELETE", "api-keys"},
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

func TestConfig(t *testing.T) {
	api, err := storageapi.NewHandler(storageapi.Config{Store: memory.New()})
	if err != nil {
		t.Fatal(err)
	}
	account := func(*http.Request) (string, error) { return alice, nil }
	tests := []struct {
		config dashboard.Config
		want   string
	}{
		{dashboard.Config{Account: account}, "Config.API is required"},
		{dashboard.Config{API: api}, "Config.Account is required"},
		{dashboard.Config{API: api, Account: account, Path: "settings/"}, "Config.Path"},
		{dashboard.Config{API: api, Account: account, Path: "/settings"}, "Config.Path"},
		{dashboard.Config{API: api, Account: account, Path: "/a//b/"}, "Config.Path"},
		{dashboard.Config{API: api, Account: account, Path: "/a/../b/"}, "Config.Path"},
		{dashboard.Config{API: api, Account: account, Path: "/{tenant}/"}, "Config.Path"},
		{dashboard.Config{API: api, Account: account, Path: "/a b/"}, "Config.Path"},
	}
	for _, test := range tests {
		if pages, err := dashboard.New(test.config); pages != nil || err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: got %v, want an error of %s", test.config, err, test.want)
		}
	}
}

// Links are relative: they lead home wherever the pages are mounted.
func TestMount(t *testing.T) {
	tests := []struct {
		path, root string
		wrap       func(http.Handler) http.Handler
	}{
		{"", "/settings/", func(h http.Handler) http.Handler { return h }},
		{"/", "/", func(h http.Handler) http.Handler { return h }},
		{"/account/api-keys/", "/account/api-keys/", func(h http.Handler) http.Handler { return h }},
		{"/", "/of/acme/", func(h http.Handler) http.Handler { return http.StripPrefix("/of/acme", h) }},
	}
	for _, test := range tests {
		s := newSite(t, storageapi.Config{})
		key, _ := s.key(alice, "a key", time.Time{})
		mux := http.NewServeMux()
		mux.Handle(test.root, test.wrap(s.mount(dashboard.Config{Path: test.path})))
		s.pages, s.root = mux, test.root
		s.follow(s.get("")).want(http.StatusOK).says("a key")
		checkLinks(t, s, s.get("api-keys"))
		checkLinks(t, s, s.get("api-keys/"+key.ID))
		checkLinks(t, s, s.get("api-keys/"+key.ID+"/revoke"))
		s.follow(s.post("api-keys/"+key.ID+"/revoke", nil)).want(http.StatusOK).says("The key was revoked")
		s.get("nothing/at/all").want(http.StatusNotFound)
	}
}

var links = regexp.MustCompile(`(?:href|src|action)="([^"#]+)"`)

// checkLinks follows all links of a page.
func checkLinks(t *testing.T, s *site, from *page) {
	t.Helper()
	from.want(http.StatusOK)
	for _, match := range links.FindAllStringSubmatch(from.body, -1) {
		to, err := from.at.Parse(match[1])
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(to.Path, s.root) {
			t.Errorf("%s leads to %s", from.at, to)
			continue
		}
		s.do(httptest.NewRequest("GET", to.String(), nil)).want(http.StatusOK)
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

// inline is what the Content-Security-Policy refuses to run.
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
	webhook, err := s.api.Webhooks.Create(t.Context(), alice, webhooks.CreateParams{URL: "https://example.com/", Events: webhooks.EventTypes()})
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
		r := s.formRequest(p.path, allFields(), "") // of an older browser
		r.Header.Set("Origin", "https://evil.example")
		s.do(r).want(http.StatusForbidden)
	}
	after, err := s.api.Webhooks.Get(t.Context(), alice, webhook.ID)
	if keys := s.keys(); len(keys) != 1 || keys[0].Name != "a key" || !s.valid(token) || err != nil || !after.Active || after.URL != webhook.URL {
		t.Errorf("something was changed: %+v, %+v", keys, after)
	}
}

// Another account's ids are as if they had never been.
func TestOtherAccount(t *testing.T) {
	s := newSite(t, storageapi.Config{})
	key, token := s.key(alice, "of alice", time.Time{})
	webhook, err := s.api.Webhooks.Create(t.Context(), alice, webhooks.CreateParams{URL: "https://example.com/alice", Events: webhooks.EventTypes()})
	if err != nil {
		t.Fatal(err)
	}
	event := webhooks.Event{ID: "evt_of_alice", Account: alice, Data: webhooks.BalanceLow{Balance: 1, Threshold: 2}}
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
	for _, p := range theirs { // and they are there
		if p.method == "GET" {
			s.get(p.path).want(http.StatusOK)
		}
	}
}

const markup = `"><script>alert(1)</script><img src=x onerror=alert(1)>'{{.}}</title></textarea>&lt;`

func TestMarkupIsText(t *testing.T) {
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

// checkMarkup checks that the markup is there, and is text.
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

// Nothing secret is on a page but the one that is to show it, nor in the log.
func TestSecretsStayIn(t *testing.T) {
	var log strings.Builder
	s := newSite(t, storageapi.Config{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	newKey := s.get("api-keys/new").form("name", "a", "scopes", "files:read", "expiry", "never")
	first := s.post("api-keys/new", newKey).want(http.StatusOK).secret()
	key := s.keys()[0].ID
	second := s.post("api-keys/"+key+"/rotate", s.get("api-keys/"+key+"/rotate").form("grace", "24h")).want(http.StatusOK).secret()
	newHook := s.get("webhooks/new").form("url", "https://example.com/", "events", "balance.low")
	third := s.post("webhooks/new", newHook).want(http.StatusOK).secret()
	webhook := s.webhooks()[0].ID
	fourth := s.post("webhooks/"+webhook+"/rotate", s.get("webhooks/"+webhook+"/rotate").form("grace", "24h")).want(http.StatusOK).secret()

	secrets := []string{first, second, third, fourth, strings.TrimPrefix(third, "whsec_"), strings.TrimPrefix(fourth, "whsec_")}
	for _, secret := range secrets {
		if secret == "" {
			t.Fatal("a secret was not shown")
		}
	}
	s.post("api-keys/new", newKey).want(http.StatusOK).hides(secrets...)
	s.post("webhooks/new", newHook).want(http.StatusOK).hides(secrets...)
	for _, path := range []string{"api-keys", "webhooks"} {
		s.get(path).hides(secrets...)
	}
	for _, step := range steps(key, webhook, "evt_1", "rec_1") {
		if strings.HasSuffix(step.path, "/test") { // which is sent
			continue
		}
		r := s.formRequest(step.path, allFields(), "same-origin")
		r.Method = step.method
		got := s.do(r).hides(secrets...)
		for _, secret := range secrets {
			if strings.Contains(got.header.Get("Location"), secret) {
				t.Errorf("%s leads to where a secret is shown", step.path)
			}
		}
		if got.secret() != "" {
			t.Errorf("%s %s shows a secret", step.method, step.path)
		}
	}
	for _, secret := range secrets {
		if strings.Contains(log.String(), secret) {
			t.Errorf("a secret is in the log: %s", &log)
		}
	}
}

// What fails is logged and not told.
func TestFailure(t *testing.T) {
	var log strings.Builder
	s := newSite(t, storageapi.Config{Store: failing{memory.New()}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	s.get("api-keys").want(http.StatusInternalServerError).says("Something went wrong").hides("the disk is gone")
	if !strings.Contains(log.String(), "the disk is gone") || !strings.Contains(log.String(), "GET /settings/api-keys") {
		t.Errorf("logged: %s", &log)
	}
}

type failing struct{ store.Store }

func (failing) ListKeys(context.Context, string, apikeys.Page) ([]apikeys.Key, error) {
	return nil, errors.New("the disk is gone")
}
