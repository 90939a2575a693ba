package dashboard_test

import (
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
	"github.com/storageapi/storageapi/webhooks"
)

func TestSearch_LongestQueryAndAnyScript_FindsMatches(t *testing.T) {
	s := newSite(t, storageapi.Config{Webhooks: webhooks.Config{Outbound: webhooks.Outbound{AllowHosts: []string{"example.com"}}}})
	address := "https://example.com/" + strings.Repeat("a", 170)
	hook, err := s.api.Webhooks.Create(t.Context(), alice, webhooks.CreateParams{URL: address, Events: []webhooks.EventType{alerts.TypeBalanceLow}})
	if err != nil {
		t.Fatal(err)
	}
	s.search(address).leadsOn("webhooks/" + hook.ID)
	key, _ := s.key(alice, strings.Repeat("鍵", 128), time.Time{})
	s.search(key.Name).leadsOn("api-keys/" + key.ID)
}

// A search for a current or former name of a key must find the key once. This holds even if the key
// is deleted, or if another key has that name now.
func TestSearch_EarlierName_FindsTheKey(t *testing.T) {
	s := newSite(t, storageapi.Config{})
	key, _ := s.key(alice, "laptop of mia", time.Time{})
	for _, name := range []string{"laptop of ben", "backup job"} {
		if _, err := s.api.Keys.Update(t.Context(), alice, key.ID, apikeys.UpdateParams{Name: &name}); err != nil {
			t.Fatal(err)
		}
	}
	auditLog := "audit-log?target=" + key.ID
	for _, name := range []string{"of mia", "Laptop"} {
		s.search(name).leadsOn(auditLog)
	}
	s.search("backup").leadsOn("api-keys/" + key.ID)
	s.search("laptop").leadsOn(auditLog)
	other, _ := s.key(alice, "laptop of ann", time.Time{})
	page := s.search("laptop").want(http.StatusOK).says("laptop of ann").says("Former names laptop of ben")
	page.hides("laptop of mia")
	if err := s.api.Keys.Delete(t.Context(), alice, key.ID, apikeys.DeleteParams{}); err != nil {
		t.Fatal(err)
	}
	s.search("laptop").want(http.StatusOK).says(other.ID).says("laptop of ben")
}

// A user pastes the value of a key, or text that looks like one, into a search field. No URL may
// contain the text, and no page may show it.
func TestSearch_Secret_IsInNoURL(t *testing.T) {
	s := newSite(t, storageapi.Config{})
	key, token := s.key(alice, "a key", time.Time{})
	s.key(alice, "another", time.Time{})
	secrets := map[string]string{ // maps pasted text to the secret part of it
		"Api-Key: " + token: token, token: token, `"` + token + `",`: token, "KEY=" + token: token,
		"(" + token + ")": token, "key=" + token + "&x": token, "<" + token + ">": token, "/" + token + "/": token, "x " + token + ".": token,
		token[:len(token)-1]:                     token[:len(token)-1],
		token + "x":                              token,
		"old_0123456789abcde":                    "0123456789abcde",
		"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw": "MfKQ9r8GKYqr",
	}
	for text, secret := range secrets {
		for path, field := range map[string]string{"search": "q", "api-keys": "name"} {
			found := s.post(path, url.Values{field: {text}})
			for to := found.header.Get("Location"); strings.HasPrefix(to, "./search"); to = found.header.Get("Location") {
				if strings.Contains(to, secret) {
					t.Fatalf("%s: %.12s… leads to %s", path, text, to)
				}
				found = s.follow(found)
			}
			if secret == token && !strings.HasSuffix(text, "x") {
				found.leadsOn("api-keys/" + key.ID)
			}
			if regexp.MustCompile(`(href|action|data-replace)="[^"]*` + regexp.QuoteMeta(secret)).MatchString(found.body) {
				t.Errorf("%s: %.12s… is in an address of %s", path, text, found.body)
			}
		}
	}
}

// The dashboard passes the requested address to the login page. It must first remove secrets that a
// user has typed into the address or bookmarked.
func TestSignIn_SecretInURL_IsNotInNext(t *testing.T) {
	s := newSite(t, storageapi.Config{})
	_, token := s.key(alice, "a key", time.Time{})
	nobody := func(*http.Request) (string, error) { return "", nil }
	pages, err := dashboard.New(dashboard.Config{API: s.api, Account: nobody, SignIn: "/login", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for asked, want := range map[string]string{
		"search?q=" + token:                                   "search",
		"search?q=" + url.QueryEscape("("+token+")"):          "search",
		"search?q=" + url.QueryEscape("key="+token+"&x"):      "search",
		"search?q=" + url.QueryEscape("Api-Key: "+token):      "search",
		"search?q=backup":                                     "search?q=backup",
		"search?" + token:                                     "search",
		"api-keys?scope=files:read&name=" + token:             "api-keys?scope=files%3Aread",
		"api-keys?name=old_0123456789abcde":                   "api-keys",
		"api-keys/" + token:                                   "api-keys/",
		"api-keys/" + token + "/rotate":                       "api-keys/",
		"audit-log?target=key_01JZ5T3K9QWERTYASDFGHZXCVB":     "audit-log?target=key_01JZ5T3K9QWERTYASDFGHZXCVB",
		"webhooks/wh_01JZ5T3K9QWERTYASDFGHZXCVB?after=aud_12": "webhooks/wh_01JZ5T3K9QWERTYASDFGHZXCVB?after=aud_12",
	} {
		w := httptest.NewRecorder()
		pages.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/settings/"+asked, nil))
		if got, want := w.Header().Get("Location"), "/login?next="+url.QueryEscape("/settings/"+want); got != want {
			t.Errorf("%.30s… leads to %s, want %s", asked, got, want)
		}
	}
}
