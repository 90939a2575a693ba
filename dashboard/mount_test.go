package dashboard_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/dashboard"
	"github.com/storageapi/storageapi/store/memory"
)

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

// Links are relative, so they must work no matter where the pages are mounted.
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
		s.follow(s.post("api-keys/"+key.ID+"/revoke", nil)).want(http.StatusOK).says("Key revoked")
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
