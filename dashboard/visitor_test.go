package dashboard_test

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/dashboard"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// A request for a page without an account must be redirected to the login page, which gets the
// requested path. A form without an account must be rejected.
func TestSignIn(t *testing.T) {
	api, err := storageapi.NewHandler(storageapi.Config{Store: untouchable{}})
	if err != nil {
		t.Fatal(err)
	}
	nobody := func(*http.Request) (string, error) { return "", errors.New("not signed in") }
	for _, test := range []struct{ signIn, asked, want string }{
		{"/login", "/settings/api-keys", "/login?next=%2Fsettings%2Fapi-keys"},
		{"/login?lang=de", "/settings/webhooks/wh_1/deliveries?state=dead&after=x", "/login?lang=de&next=%2Fsettings%2Fwebhooks%2Fwh_1%2Fdeliveries%3Fstate%3Ddead%26after%3Dx"},
		{"https://id.example.com/start", "/settings/", "https://id.example.com/start?next=%2Fsettings%2F"},
		{"/login?next=mine", "/outer/settings/a%2Fb", "/login?next=%2Fouter%2Fsettings%2Fa%252Fb"},
		{"/login", "//evil.example/settings/api-keys", "/login?next=%2Fevil.example%2Fsettings%2Fapi-keys"},
	} {
		pages, err := dashboard.New(dashboard.Config{API: api, Account: nobody, SignIn: test.signIn, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		s := &site{TB: t, root: "/settings/", pages: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/outer/") {
				pages = http.StripPrefix("/outer", pages)
			}
			pages.ServeHTTP(w, r)
		})}
		for _, method := range []string{"GET", "HEAD"} {
			r := httptest.NewRequest(method, "/", nil)
			r.RequestURI = test.asked
			r.URL, _ = r.URL.Parse(strings.Replace(test.asked, "//evil.example", "", 1))
			got := s.do(r).want(http.StatusSeeOther)
			if location := got.header.Get("Location"); location != test.want {
				t.Errorf("%s %s: sent to %s, want %s", method, test.asked, location, test.want)
			}
			checkHeader(t, got)
			if method == "GET" && strings.HasPrefix(test.asked, "/outer/") {
				break // each request wraps pages again, so send only one request
			}
		}
		if !strings.HasPrefix(test.asked, "/outer/") {
			s.post("api-keys/new", allFields()).want(http.StatusForbidden)
		}
	}
}

func TestHomeAndSignOut(t *testing.T) {
	s := newSite(t, storageapi.Config{})
	s.pages = s.mount(dashboard.Config{Title: "Storage", Home: "https://example.com/?a=b&c=d", SignOut: "/logout?all=1"})
	for _, path := range []string{"api-keys", "webhooks/new", "nothing"} {
		body := s.get(path).body
		for _, want := range []string{
			`<a href="https://example.com/?a=b&amp;c=d">Storage</a>`,
			`<form method="post" action="/logout?all=1"><button class="button plain">Sign out</button></form>`,
		} {
			if !strings.Contains(body, want) {
				t.Errorf("%s: %s is not in:\n%s", path, want, body)
			}
		}
	}
	s.pages = s.mount(dashboard.Config{})
	s.get("api-keys").says("Settings").hides("Sign out")
}

func TestNew_InvalidURL_ReturnsError(t *testing.T) {
	api, err := storageapi.NewHandler(storageapi.Config{Store: memory.New()})
	if err != nil {
		t.Fatal(err)
	}
	account := func(*http.Request) (string, error) { return alice, nil }
	for field, addresses := range map[string][]string{
		"Home":    {"javascript:alert(1)", "//evil.example/", "home", `/\evil.example`, "https:///", "https://u:p@example.com/"},
		"SignIn":  {"login", "//evil.example/", "/settings/login", "/settings", "javascript:alert(1)", "/%zz"},
		"APIURL":  {"/v2", "api.example.com", "javascript:alert(1)"},
		"SignOut": {"logout", "https://example.com/logout", "//evil.example/", "/settings/logout"},
	} {
		for _, address := range addresses {
			config := dashboard.Config{API: api, Account: account}
			switch field {
			case "Home":
				config.Home = address
			case "SignIn":
				config.SignIn = address
			case "APIURL":
				config.APIURL = address
			case "SignOut":
				config.SignOut = address
			}
			if _, err := dashboard.New(config); err == nil || !strings.Contains(err.Error(), "Config."+field+" must be") {
				t.Errorf("%s %q: %v", field, address, err)
			}
		}
	}
}

// changing matches the buttons and links of pages that change something.
var changing = regexp.MustCompile(`<form method="post"|/(new|revoke|rotate|edit|delete|recover)"`)

// Users who may only view must see no buttons or links that change something, and forms that they
// send must have no effect.
func TestMay_ViewOnlyUser_CannotChange(t *testing.T) {
	s := newSite(t, storageapi.Config{})
	key, token := s.key(alice, "a key", time.Time{})
	webhook, err := s.api.Webhooks.Create(t.Context(), alice, webhooks.CreateParams{URL: "https://example.com/", Events: alerts.EventTypes()})
	if err != nil {
		t.Fatal(err)
	}
	event := webhooks.Event{ID: "evt_1", Account: alice, Data: alerts.BalanceLow{Balance: 1, Threshold: 2}}
	if err := s.api.Webhooks.Publish(t.Context(), event); err != nil {
		t.Fatal(err)
	}
	recovery, err := s.api.Webhooks.Recover(t.Context(), alice, webhook.ID, webhooks.RecoverParams{})
	if err != nil {
		t.Fatal(err)
	}
	looks := []string{"api-keys", "api-keys/" + key.ID, "webhooks", "webhooks/" + webhook.ID, "webhooks/" + webhook.ID + "/deliveries",
		"webhooks/" + webhook.ID + "/deliveries/" + event.ID, "webhooks/" + webhook.ID + "/recoveries/" + recovery.ID}
	changes := steps(key.ID, webhook.ID, event.ID, recovery.ID)
	for _, path := range []string{"api-keys/new", "webhooks/new"} {
		changes = append(changes, struct{ method, path string }{"GET", path}, struct{ method, path string }{"POST", path})
	}
	may := func(allowed ...auth.Action) {
		s.pages = s.mount(dashboard.Config{Logger: slog.New(slog.DiscardHandler), May: func(r *http.Request, action auth.Action) bool {
			if r.Header.Get("Cookie") != "" {
				t.Error("asked with another request")
			}
			return slices.Contains(allowed, action)
		}})
	}

	may(auth.ReadKeys, auth.ReadWebhooks)
	isLook := make(map[string]bool)
	for _, path := range looks {
		isLook[path] = true
		if found := changing.FindString(s.get(path).want(http.StatusOK).body); found != "" {
			t.Errorf("%s shows %s to people who may only look", path, found)
		}
	}
	refused := 0
	for _, p := range changes {
		if p.method == "GET" && isLook[p.path] {
			continue
		}
		r := s.formRequest(p.path, allFields(), "same-origin")
		r.Method = p.method
		s.do(r).want(http.StatusForbidden).says("You don’t have permission to do this", "Nothing was changed.")
		refused++
	}
	after, err := s.api.Webhooks.Get(t.Context(), alice, webhook.ID)
	if keys := s.keys(); refused < 20 || len(keys) != 1 || keys[0].Name != "a key" || !s.valid(token) || err != nil || !after.Active || after.URL != webhook.URL {
		t.Errorf("%d were refused, and something was changed: %+v, %+v, %v", refused, keys, after, err)
	}

	// This user may perform some actions but not others.
	may(auth.ReadWebhooks, auth.UpdateWebhook)
	s.follow(s.get("")).want(http.StatusOK).says("Webhooks").hides("API keys")
	s.get("api-keys").want(http.StatusForbidden)
	s.get("webhooks/"+webhook.ID).want(http.StatusOK).says("Send test event", "Rotate secret…").hides("Delete…")
	s.post("webhooks/"+webhook.ID+"/turn", map[string][]string{"to": {"off"}}).want(http.StatusSeeOther)
	may(auth.ReadKeys, auth.DeleteKey)
	s.follow(s.get("")).want(http.StatusOK).says("API keys", "Revoke").hides("Create key", ">Webhooks<")
	s.get("api-keys/"+key.ID).says("Revoke…").hides("Rotate…", "Rename")
	may()
	s.get("api-keys").want(http.StatusForbidden)
	s.get("webhooks").want(http.StatusForbidden)

	// Without Config.May, users may do everything.
	s.pages = s.mount(dashboard.Config{})
	s.get("api-keys/"+key.ID).says("Revoke…", "Rotate…", "Rename")
	s.get("webhooks/"+webhook.ID).says("Send test event", "Rotate secret…", "Delete…", "Resend missed events…")
}
