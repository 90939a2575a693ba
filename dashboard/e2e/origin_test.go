package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
)

// Another site must not be able to submit forms to the pages or to frame them.
func TestOtherSite(t *testing.T) {
	s := newSite(t)
	key, token, err := s.api.Keys.Create(t.Context(), account, apikeys.CreateParams{Name: "a key", Scopes: scopes.Specified()})
	if err != nil {
		t.Fatal(err)
	}
	target := strings.Replace(s.url, "127.0.0.1", "localhost", 1) // another site for the browser
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		if r.URL.Path == "/frame" {
			fmt.Fprintf(w, `<iframe id="frame" src="%sapi-keys"></iframe>`, target)
			return
		}
		fmt.Fprintf(w, `<form method="post" action="%sapi-keys/%s/revoke"><button>Win a prize</button></form>`, target, key.ID)
	}))
	t.Cleanup(evil.Close)
	own := s.url
	s.url = evil.URL + "/"
	w := s.open(t)
	w.expect("status of 403")
	w.visit("")
	w.click("Win a prize")
	w.see("Another site sent this request. Nothing was changed.")
	if !s.valid(token.Reveal()) {
		t.Error("another site revoked a key")
	}
	w.visit("frame")
	w.hear("frame-ancestors")
	s.url = own
}
