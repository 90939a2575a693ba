package dashboard_test

import (
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/webhooks"
)

// FuzzPages sends arbitrary requests. No request may cause a server error, and no input may appear
// as markup.
func FuzzPages(f *testing.F) {
	s := newSite(f, storageapi.Config{})
	key, _ := s.key(alice, "a key", time.Time{})
	webhook, err := s.api.Webhooks.Create(f.Context(), alice, webhooks.CreateParams{URL: "https://example.com/", Events: alerts.EventTypes()})
	if err != nil {
		f.Fatal(err)
	}
	for _, step := range steps(key.ID, webhook.ID, "evt_1", "rec_1") {
		if !strings.HasSuffix(step.path, "/test") { // would send a request to the receiver
			f.Add(step.method == "POST", step.path, "after=x&state=dead&from=2026-01-01T00:00&to=soon", allFields().Encode())
		}
	}
	f.Add(true, "api-keys/new", "done=revoked", url.Values{"name": {markup}, "scopes": {"files:read"}, "expiry": {"date"}, "date": {"9999-12-31"}}.Encode())
	f.Add(true, "webhooks/new", "", url.Values{"url": {"https://" + markup}, "events": {"balance.low"}, "threshold": {"1e9"}}.Encode())
	f.Add(true, "api-keys/new", "a;b", "%zz&=")
	f.Fuzz(func(t *testing.T, post bool, path, query, body string) {
		if strings.HasSuffix(strings.TrimSuffix(path, "/"), "/test") {
			t.Skip("is sent to a receiver")
		}
		own := *s
		own.TB = t
		r := own.formRequest("", nil, "same-origin")
		r.URL = &url.URL{Path: s.root + path, RawQuery: query}
		if r.Method = "GET"; post {
			r.Method = "POST"
			r.Body = httptest.NewRequest("POST", "/", strings.NewReader(body)).Body
		}
		got := own.do(r)
		if got.status >= 500 {
			t.Fatalf("%d for %s %q?%q with %q:\n%s", got.status, r.Method, path, query, body, got.body)
		}
		checkHeader(t, got)
		if found := inline.FindString(strings.ReplaceAll(got.body, "https://example.com", "")); strings.HasPrefix(found, "<") {
			t.Fatalf("%q for %s %q?%q with %q", found, r.Method, path, query, body)
		}
	})
}
