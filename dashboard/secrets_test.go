package dashboard_test

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/storageapi/storageapi"
)

// Each secret must appear only on the page that shows it once, and never in the log.
func TestSecrets_AppearOnlyOnTheirOwnPages(t *testing.T) {
	var log strings.Builder
	s := newSite(t, storageapi.Config{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	newKey := s.get("api-keys/new").form("name", "a", "scopes", "files:read", "expiry", "never")
	first := s.post("api-keys/new", newKey).want(http.StatusOK).secret()
	key := s.keys()[0].ID
	second := s.post("api-keys/"+key+"/rotate", s.get("api-keys/"+key+"/rotate").form("grace", "24h")).want(http.StatusOK).secret()
	newHook := s.get("webhooks/new").form("url", "https://example.com/", "events", "balance.low", "secrets", "Authorization: Bearer h3ader-s3cret")
	third := s.post("webhooks/new", newHook).want(http.StatusOK).secret()
	webhook := s.webhooks()[0].ID
	fourth := s.post("webhooks/"+webhook+"/rotate", s.get("webhooks/"+webhook+"/rotate").form("grace", "24h")).want(http.StatusOK).secret()

	secrets := []string{first, second, third, fourth, strings.TrimPrefix(third, "whsec_"), strings.TrimPrefix(fourth, "whsec_"), "h3ader-s3cret"}
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
		if strings.HasSuffix(step.path, "/test") { // would send a request to the receiver
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
