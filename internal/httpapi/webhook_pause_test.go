package httpapi_test

import (
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/webhooks"
)

// TestPauseWebhook pauses a webhook with and without an end, and resumes it.
func TestPauseWebhook(t *testing.T) {
	c := newClock()
	h := serve(t, storageapi.Config{Webhooks: webhooks.Config{Now: c.Now}})
	admin := h.admin(alice)
	one := webhooksPath + "/" + h.do("POST", webhooksPath, admin, `{"url":"https://example.com","events":["balance.low"]}`).want(201, "").text("id")
	for _, step := range []struct{ body, want string }{
		{`{"paused":true}`, `,"paused":true,"balanceThreshold"`},
		{`{"paused":null,"pausedUntil":null}`, `,"paused":true,"balanceThreshold"`},
		{`{"pausedUntil":"2026-02-01T12:00:00+01:00"}`, `,"paused":true,"pausedUntil":"2026-02-01T11:00:00.000Z"`},
		{`{"pausedUntil":"2026-02-02","paused":true}`, `,"paused":true,"pausedUntil":"2026-02-02T00:00:00.000Z"`},
		{`{"paused":true,"pausedUntil":"2026-02-03"}`, `,"paused":true,"pausedUntil":"2026-02-03T00:00:00.000Z"`},
		{`{"paused":true}`, `,"paused":true,"balanceThreshold"`},
		{`{"paused":false}`, ""},
		{`{"paused":false}`, ""},
		{`{"pausedUntil":"2026-02-01"}`, `,"paused":true,"pausedUntil":"2026-02-01T00:00:00.000Z"`},
	} {
		got := h.do("PATCH", one, admin, step.body).want(200, "")
		read, list := h.do("GET", one, admin, ""), h.do("GET", webhooksPath, admin, "")
		if !strings.Contains(got.body, step.want) || step.want == "" && strings.Contains(got.body, "paused") || read.body != got.body || !strings.Contains(list.body, got.body) {
			t.Errorf("%s: got %s, want %s; read %s", step.body, got.body, step.want, read.body)
		}
	}
	for body, field := range map[string]string{
		`{"paused":"yes"}`: "paused", `{"paused":false,"pausedUntil":"2026-03-01"}`: "paused", `{"pausedUntil":"2026-03-01","paused":false}`: "paused",
		`{"pausedUntil":"2026-01-31"}`: "pausedUntil", `{"pausedUntil":"soon"}`: "pausedUntil", `{"pausedUntil":"0001-01-01"}`: "pausedUntil", `{"pausedUntil":true}`: "pausedUntil",
	} {
		if got := h.do("PATCH", one, admin, body).want(400, "VALIDATION_ERROR"); got.field() != field {
			t.Errorf("%s: got %s", body, got.body)
		}
	}
	c.Add(24 * time.Hour) // past the end of the last pause
	if got := h.do("GET", one, admin, "").want(200, ""); strings.Contains(got.body, "paused") {
		t.Errorf("after the pause: %s", got.body)
	}
}
