package dashboard_test

import (
	"html"
	"io"
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
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/memory"
)

const (
	alice = "acct_alice"
	bob   = "acct_bob"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// A site is a host with the dashboard, used by a person who is signed in.
type site struct {
	testing.TB
	api     *storageapi.Handler
	pages   http.Handler
	account string // account of the person who is signed in
	root    string // mount point of the pages
}

// newSite returns a site where alice is signed in. It uses a memory store unless config sets a path
// or a store.
func newSite(t testing.TB, config storageapi.Config) *site {
	t.Helper()
	if config.Store == nil && config.Path == "" {
		config.Store = memory.New()
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	api, err := storageapi.NewHandler(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	s := &site{TB: t, api: api, account: alice, root: "/settings/"}
	s.pages = s.mount(dashboard.Config{Logger: config.Logger, Now: config.Keys.Now})
	return s
}

func (s *site) mount(config dashboard.Config) http.Handler {
	s.Helper()
	config.API, config.Account = s.api, func(*http.Request) (string, error) { return s.account, nil }
	pages, err := dashboard.New(config)
	if err != nil {
		s.Fatal(err)
	}
	return pages
}

// key creates a key in Go, not in a form.
func (s *site) key(account, name string, expiresAt time.Time, members ...scopes.Scope) (apikeys.Key, string) {
	s.Helper()
	set := scopes.Of(members...)
	if set.IsEmpty() {
		set = scopes.Of(scopes.FilesRead)
	}
	key, token, err := s.api.Keys.Create(s.Context(), account, apikeys.CreateParams{Name: name, Scopes: set, ExpiresAt: expiresAt})
	if err != nil {
		s.Fatal(err)
	}
	return key, token.Reveal()
}

func (s *site) keys() []apikeys.Key {
	s.Helper()
	list, err := s.api.Keys.List(s.Context(), s.account, apikeys.KeyQuery{Limit: 100})
	if err != nil {
		s.Fatal(err)
	}
	return list.Keys
}

func (s *site) valid(token string) bool {
	_, err := s.api.Keys.Verify(s.Context(), token)
	return err == nil
}

// A page is a response with its body.
type page struct {
	testing.TB
	at     *url.URL
	status int
	header http.Header
	body   string
}

func (s *site) do(r *http.Request) *page {
	s.Helper()
	w := httptest.NewRecorder()
	s.pages.ServeHTTP(w, r)
	body, err := io.ReadAll(w.Result().Body)
	if err != nil {
		s.Fatal(err)
	}
	return &page{s, r.URL, w.Code, w.Result().Header, string(body)}
}

// get requests a page by its path below the root.
func (s *site) get(path string) *page {
	s.Helper()
	return s.do(httptest.NewRequestWithContext(s.Context(), "GET", s.root+path, nil))
}

// post sends a form as a browser would from a page of the dashboard.
func (s *site) post(path string, form url.Values) *page {
	s.Helper()
	return s.do(s.formRequest(path, form, "same-origin"))
}

func (s *site) formRequest(path string, form url.Values, from string) *http.Request {
	r := httptest.NewRequestWithContext(s.Context(), "POST", s.root+path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if from != "" {
		r.Header.Set("Sec-Fetch-Site", from)
	}
	return r
}

// follow requests the page to which a response redirects.
func (s *site) follow(p *page) *page {
	s.Helper()
	p.want(http.StatusSeeOther)
	to, err := p.at.Parse(p.header.Get("Location"))
	if err != nil {
		s.Fatal(err)
	}
	return s.do(httptest.NewRequestWithContext(s.Context(), "GET", to.RequestURI(), nil))
}

func (p *page) want(status int) *page {
	p.Helper()
	if p.status != status {
		p.Fatalf("%s: got %d, want %d:\n%s", p.at, p.status, status, p.body)
	}
	return p
}

var tags = regexp.MustCompile(`(?s)<[^>]*>`)

// text returns the visible text of the page as one line.
func (p *page) text() string {
	return strings.Join(strings.Fields(html.UnescapeString(tags.ReplaceAllString(p.body, " "))), " ")
}

// says checks that the visible text contains each of the texts.
func (p *page) says(texts ...string) *page {
	p.Helper()
	for _, text := range texts {
		if !strings.Contains(p.text(), text) {
			p.Errorf("%s: %q is not to be read in:\n%s", p.at, text, p.text())
		}
	}
	return p
}

// hides checks that the response contains none of the texts.
func (p *page) hides(texts ...string) *page {
	p.Helper()
	for _, text := range texts {
		if strings.Contains(p.body, text) {
			p.Errorf("%s: %q is in:\n%s", p.at, text, p.body)
		}
	}
	return p
}

var hidden = regexp.MustCompile(`<input type="hidden" name="(\w+)" value="([^"]*)">`)

// form returns the values of the page's form after setting the given fields.
func (p *page) form(fields ...string) url.Values {
	p.Helper()
	values := make(url.Values)
	for _, match := range hidden.FindAllStringSubmatch(p.body, -1) {
		values.Set(match[1], html.UnescapeString(match[2]))
	}
	for i := 0; i < len(fields); i += 2 {
		values.Add(fields[i], fields[i+1])
	}
	return values
}

var secretShown = regexp.MustCompile(`<code id="secret" data-secret>([^<]*)</code>`)

// secret returns the value that the page shows once, or "" if there is none.
func (p *page) secret() string {
	match := secretShown.FindStringSubmatch(p.body)
	if match == nil {
		return ""
	}
	return html.UnescapeString(match[1])
}

// leadsTo returns the target of the link with the given text, relative to the root.
func (p *page) leadsTo(text string) string {
	p.Helper()
	for _, match := range linked.FindAllStringSubmatch(p.body, -1) {
		if match[2] == text {
			to, err := p.at.Parse(html.UnescapeString(match[1]))
			if err != nil {
				p.Fatal(err)
			}
			return strings.TrimPrefix(to.RequestURI(), "/settings/")
		}
	}
	p.Fatalf("%s: no link says %q in:\n%s", p.at, text, p.body)
	return ""
}

var linked = regexp.MustCompile(`<a [^>]*href="([^"]+)"[^>]*>([^<]*)</a>`)
