package dashboard_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"html"
	"math"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/dashboard"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

var (
	bodyShown   = regexp.MustCompile(`(?s)<pre id="body"[^>]*>(.*?)</pre>`)
	signedShown = regexp.MustCompile(`Signed: <code>([^<]*)</code> and the body`)
)

// The page of a delivery must show the exact bytes that were sent, and the content that was signed.
func TestEventBody(t *testing.T) {
	r := newReceiver(t)
	r.answer(http.StatusOK, markup)
	s, w := newDelivering(t, r)
	data := []webhooks.Data{
		alerts.BandwidthLimitReached{UsedBytes: math.MaxInt64, LimitBytes: math.MaxInt64, Period: "2026-11"},
		alerts.FilesExpiring{Files: []alerts.ExpiringFile{{ID: "file_1", Name: `<&>"é` + "\u2028\\", ExpiresAt: noon}}},
	}
	for i, id := range []string{"evt_number", "evt_markup"} {
		if err := s.api.Webhooks.Publish(t.Context(), webhooks.Event{ID: id, Account: alice, Data: data[i]}); err != nil {
			t.Fatal(err)
		}
		s.settled(w.ID, id)
		sent, err := s.api.Webhooks.Body(t.Context(), alice, id)
		if err != nil {
			t.Fatal(err)
		}
		shown := s.get("webhooks/"+w.ID+"/deliveries/"+id).want(http.StatusOK).says("Event Body", "Exactly as signed", "Stored until", "X-Service-Signature The HMAC-SHA256 of the body", "Signatures are not stored")
		checkMarkup(t, shown)
		body := html.UnescapeString(bodyShown.FindStringSubmatch(shown.body)[1])
		if diff := cmp.Diff(string(sent), body); diff != "" {
			t.Errorf("%s (-sent +shown):\n%s", id, diff)
		}
		line := []string{"\n    \"usedBytes\": 9223372036854775807,\n", "\n        \"name\": " + `"<&>\"é`}[i]
		if !strings.Contains(html.UnescapeString(shown.body), line) {
			t.Errorf("%s: want the formatted line %q in:\n%s", id, line, shown.body)
		}
		event, attempts, _ := strings.Cut(shown.body, ">Attempts<")
		if !strings.Contains(event, `id="body"`) || strings.Contains(attempts, `id="body"`) {
			t.Error("the event is not above the attempts")
		}
		signed := html.UnescapeString(signedShown.FindStringSubmatch(shown.body)[1])
		header := r.header.Load().(http.Header)
		whole := w.Secret.Reveal()
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(whole, "whsec_"))
		if err != nil {
			t.Fatal(err)
		}
		if want := "v1," + base64.StdEncoding.EncodeToString(mac(key, signed+body)); header.Get("Webhook-Signature") != want {
			t.Errorf("%s: signed %s, computed %s", id, header.Get("Webhook-Signature"), want)
		}
		if want := hex.EncodeToString(mac([]byte(whole), body)); header.Get("X-Service-Signature") != want {
			t.Errorf("%s: signed %s, computed %s", id, header.Get("X-Service-Signature"), want)
		}
		for name := range header { // all headers as sent, except the signatures
			if value := header.Get(name); !strings.Contains(name, "Signature") && name != "Content-Length" && !strings.Contains(shown.text(), name+" "+value) {
				t.Errorf("the page has no %s: %s", name, value)
			}
		}
	}
	test := s.post("webhooks/"+w.ID+"/test", nil).want(http.StatusOK).says("Test result", "Exactly as signed").hides("Stored until")
	if body := html.UnescapeString(bodyShown.FindStringSubmatch(test.body)[1]); !strings.Contains(body, `"data":{"webhookId":"`+w.ID+`"}`) {
		t.Errorf("the test event is shown as %s", body)
	}
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	_, _ = h.Write([]byte(text))
	return h.Sum(nil)
}

// Some users may see deliveries but not the bodies of events.
func TestEventBody_UserMayNotReadEvents_IsHidden(t *testing.T) {
	r := newReceiver(t)
	s, w := newDelivering(t, r)
	s.publish(w.ID, "evt_1")
	path := "webhooks/" + w.ID + "/deliveries/evt_1"
	s.pages = s.mount(dashboard.Config{May: func(_ *http.Request, action auth.Action) bool { return action == auth.ReadWebhooks }})
	if shown := s.get(path).want(http.StatusOK).says("Low balance", "Attempt 1").hides("Body"); strings.Contains(shown.body, "threshold") {
		t.Error("the event is shown")
	}
	s.account = bob
	s.pages = s.mount(dashboard.Config{})
	s.get(path).want(http.StatusNotFound).hides("threshold")
}

func TestEventBody_AfterRetention_PageSaysItIsGone(t *testing.T) {
	store := memory.New()
	s := newSite(t, storageapi.Config{Store: store})
	w, err := s.api.Webhooks.Create(t.Context(), alice, webhooks.CreateParams{URL: "https://example.com/", Events: alerts.EventTypes()})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.api.Webhooks.Publish(t.Context(), webhooks.Event{ID: "evt_1", Account: alice, Data: alerts.BalanceLow{Balance: 1, Threshold: 2}}); err != nil {
		t.Fatal(err)
	}
	path := "webhooks/" + w.ID + "/deliveries/evt_1"
	s.get(path).says("Stored until").hides("no longer stored")
	if _, err := store.Purge(t.Context(), driver.Purge{Payloads: time.Now().Add(time.Hour), Limit: 9}); err != nil {
		t.Fatal(err)
	}
	s.get(path).want(http.StatusOK).says("Event The event is no longer stored.").hides("Stored until", "How to verify")
	s.get("events/evt_1").want(http.StatusOK).says("Event The body is not stored").hides("Stored until", "How to verify")
}
