package e2e

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/storageapi/storageapi/alerts"
)

// TestEvent copies the body of an event. The copy must equal the bytes that were sent, even after
// the page has updated itself. The test also checks the instructions for verifying signatures.
func TestEvent(t *testing.T) {
	s := newSite(t)
	webhook := s.subscribe("/hooks", alerts.TypeBandwidthLimitReached, alerts.TypeFilesExpiring)
	s.receiver.answer(http.StatusServiceUnavailable, "", 0)
	ids := s.publish(
		alerts.BandwidthLimitReached{UsedBytes: math.MaxInt64, LimitBytes: math.MaxInt64, Period: "2026-11"},
		alerts.FilesExpiring{Files: []alerts.ExpiringFile{{ID: "file_1", Name: markup + "\u2028 é\n  two", ExpiresAt: time.Now()}}},
	)
	w := s.open(t)
	w.allowClipboard()
	for _, id := range ids {
		sent, err := s.api.Webhooks.Body(t.Context(), account, id)
		if err != nil {
			t.Fatal(err)
		}
		copied := func(when string) {
			t.Helper()
			w.click("Copy raw")
			w.see("Copied")
			if got := eval[string](w, `navigator.clipboard.readText()`); got != string(sent) {
				t.Errorf("%s: copied %q, want %q", when, got, sent)
			}
		}
		w.visit("webhooks/" + webhook.ID + "/deliveries/" + id)
		w.see("Exactly as signed", "Stored until", "Failed")
		var formatted bytes.Buffer
		if err := json.Indent(&formatted, sent, "", "  "); err != nil {
			t.Fatal(err)
		}
		if got := eval[string](w, `document.querySelector("pre").textContent`); got != formatted.String() {
			t.Errorf("the page shows %q, want %q", got, formatted.String())
		}
		copied("at first")
		eval[bool](w, `document.querySelectorAll("details").forEach((details) => { details.open = true; }), true`)
		w.see("How to verify it", "Webhook-Id.Webhook-Timestamp.body", "Signatures are not stored", id+".")
		w.axe("event")

		s.receiver.answer(http.StatusOK, "", 0)
		release := s.receiver.hold()
		w.click("Resend")
		w.see("Pending")
		release()
		s.settled(id)
		w.see("Delivered", "Attempt 2") // texts above and below the event
		copied("after a change of the page")
		s.receiver.answer(http.StatusServiceUnavailable, "", 0)
	}
	w.withoutScripts()
	w.again("reload")
	w.see("Exactly as signed", "UTC")
}
