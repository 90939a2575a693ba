package e2e

import (
	"net/http"
	"testing"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/webhooks"
)

// A story is a site with realistic data.
type story struct {
	*site
	key     apikeys.Key      // one of several keys
	webhook webhooks.Webhook // a busy webhook
	down    webhooks.Webhook // a webhook whose receiver does not respond
	dead    string           // ID of an event that failed
}

// The responses of the receivers in the story.
const (
	outage = `{"error":"upstream connect error or disconnect/reset before headers"}`
	notes  = "<!doctype html>\n<h1>Internal Server Error</h1>\n<p>The database is not reachable.</p>"
)

func newStory(t *testing.T) *story {
	t.Helper()
	s := &story{site: newSite(t)}
	const day = 24 * time.Hour
	key := func(ago time.Duration, name string, life time.Duration, used time.Duration, set scopes.Set) apikeys.Key {
		s.clock(ago)
		params := apikeys.CreateParams{Name: name, Scopes: set}
		if life > 0 {
			params.ExpiresAt = time.Now().Add(life)
		}
		made, token, err := s.api.Keys.Create(t.Context(), account, params)
		if err != nil {
			t.Fatal(err)
		}
		if used > 0 {
			s.clock(used)
			if !s.valid(token.Reveal()) {
				t.Fatal("a new key is refused")
			}
		}
		return made
	}
	key(200*day, "Production API", 0, time.Minute, scopes.Specified())
	key(90*day, "Nightly backup", 9*day+time.Hour, 14*time.Hour, scopes.Of(scopes.EnvironmentsRead, scopes.FilesRead))
	s.key = key(41*day, "CI deploy", 320*day, 26*time.Hour, scopes.Of(scopes.EnvironmentsRead, scopes.EnvironmentsWrite, scopes.FilesRead, scopes.FilesWrite, scopes.PublishersRead, scopes.PublishersWrite))
	key(60*day, "Old laptop", 0, 0, scopes.Of(scopes.FilesRead))
	key(30*day, "Usage report", 0, 3*time.Hour, scopes.Of(scopes.AccountRead))
	key(3*day, "Migration (Ada)", 27*day, 0, scopes.Of(scopes.FilesRead, scopes.FilesWrite, scopes.SecretsRead))
	s.clock(2 * time.Hour)
	if _, _, err := s.api.Keys.Rotate(t.Context(), account, s.key.ID, apikeys.RotateParams{Grace: day}); err != nil {
		t.Fatal(err)
	}

	s.clock(60 * day)
	s.subscribe("/gone", alerts.TypeFilesExpiring)
	s.down = s.subscribe("/down", alerts.TypeTransactionsLimitReached)
	s.subscribe("/billing", alerts.TypeTransactionsLimitApproaching, alerts.TypeTransactionsLimitReached)
	s.webhook = s.subscribe("/storage/events", alerts.EventTypes()...)
	s.clock(50 * time.Hour)
	s.breakDown()
	s.publish(alerts.FilesExpiring{Files: []alerts.ExpiringFile{{ID: "file_1", ExpiresAt: time.Now().Add(day)}}})
	for hour := 23; hour >= 0; hour-- { // publish more events in the daytime, and simulate an outage
		s.clock(time.Duration(hour)*time.Hour + time.Minute)
		for i := range 3 + (hour*7)%6 {
			s.receiver.answer(http.StatusOK, `{"received":true}`, time.Duration(4+(hour*5)%23+i)*time.Millisecond)
			if (hour == 9 || hour == 8) && i%2 == 1 {
				s.receiver.answer(http.StatusServiceUnavailable, outage, 40*time.Millisecond)
			}
			s.publish(low)
		}
	}
	s.clock(2 * time.Minute)
	s.receiver.answer(http.StatusInternalServerError, notes, 21*time.Millisecond)
	s.dead = s.publish(alerts.BandwidthLimitReached{UsedBytes: 100, LimitBytes: 100, Period: "2026-11"})[0]
	s.receiver.answer(http.StatusOK, `{"received":true}`, 8*time.Millisecond)
	s.publish(alerts.TransactionsLimitApproaching{Used: 80, Limit: 100, Period: "2026-11", Ratio: 0.8})
	s.clock(0)
	return s
}

// breakDown publishes events until the webhook whose receiver fails counts as down.
func (s *story) breakDown() {
	s.Helper()
	for range 50 {
		stats, err := s.api.Webhooks.WebhookStats(s.Context(), account, s.down.ID)
		if err != nil {
			s.Fatal(err)
		}
		if stats.LimiterState.Open {
			return
		}
		s.publish(alerts.TransactionsLimitReached{Used: 100, Limit: 100, Period: "2026-11"})
	}
	s.Fatal("it never counts as down")
}
