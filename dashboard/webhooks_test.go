package dashboard_test

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

func (s *site) webhooks() []webhooks.Webhook {
	s.Helper()
	list, err := s.api.Webhooks.List(s.Context(), s.account, webhooks.WebhookQuery{Limit: 100})
	if err != nil {
		s.Fatal(err)
	}
	return list.Webhooks
}

func (s *site) webhook(id string) webhooks.Webhook {
	s.Helper()
	webhook, err := s.api.Webhooks.Get(s.Context(), alice, id)
	if err != nil {
		s.Fatal(err)
	}
	return webhook
}

func TestCreateWebhook(t *testing.T) {
	s := newSite(t, storageapi.Config{})
	s.get("webhooks").want(http.StatusOK).says("No webhooks yet")
	form := s.get("webhooks/new").want(http.StatusOK).says("Files expiring soon files.expiring", "SUI").
		form("url", " https://example.com/hooks?a=1&b=2 ", "events", "balance.low", "events", "files.expiring", "threshold", "12.5")
	made := s.post("webhooks/new", form).want(http.StatusOK).says("Webhook created", "You won’t be able to see it again.")
	list := s.webhooks()
	if len(list) != 1 {
		t.Fatalf("%d webhooks", len(list))
	}
	w, secret := list[0], made.secret()
	made.says("the value of its X-Service-Signature header", "export WEBHOOK_SECRET='"+secret+"' openssl dgst -sha256 -hmac \"$WEBHOOK_SECRET\" -r <body.json")
	if w.URL != "https://example.com/hooks?a=1&b=2" || !slices.Equal(w.Events, []webhooks.EventType{alerts.TypeBalanceLow, alerts.TypeFilesExpiring}) ||
		w.Threshold != 12_500_000_000 || w.Secret.Reveal() != secret {
		t.Errorf("got %+v", w)
	}

	again := s.post("webhooks/new", form).want(http.StatusOK).says("did not create another").hides(secret)
	form.Set("threshold", "13")
	other := s.post("webhooks/new", form).want(http.StatusConflict).says("has already created a webhook").hides(secret)
	if again.secret() != "" || other.secret() != "" || len(s.webhooks()) != 1 {
		t.Error("a form that was sent again made something")
	}
	for _, path := range []string{"webhooks", "webhooks/" + w.ID, "webhooks/" + w.ID + "/edit", "webhooks/" + w.ID + "/rotate", "webhooks/" + w.ID + "/delete"} {
		s.get(path).want(http.StatusOK).says("https://example.com/hooks?a=1&b=2").hides(secret)
	}
}

func TestCreateWebhook_InvalidInput_ShowsErrors(t *testing.T) {
	tests := []struct {
		fields []string
		want   []string
	}{
		{nil, []string{"Enter the URL", "Select at least one event"}},
		{[]string{"url", "http://example.com", "events", "everything", "threshold", "much"}, []string{
			"Must begin with https://.", "Select at least one event", `Must be a decimal amount of SUI, such as "12.5".`}},
		{[]string{"url", "https://10.0.0.1/", "events", "balance.low", "threshold", "0"}, []string{
			"Must be a public address, not one in a private or reserved network.", "Must be more than 0"}},
	}
	s := newSite(t, storageapi.Config{Webhooks: webhooks.Config{MaxPerAccount: 1}})
	blank := s.get("webhooks/new")
	for _, test := range tests {
		got := s.post("webhooks/new", blank.form(test.fields...)).want(http.StatusUnprocessableEntity).says(test.want...)
		if errors := strings.Count(got.body, `class="error"`); errors != len(test.want) {
			t.Errorf("%q: %d errors, want %q", test.fields, errors, test.want)
		}
	}
	fine := []string{"url", "https://example.com/", "events", "balance.low"}
	s.post("webhooks/new", blank.form(fine...)).want(http.StatusOK)
	s.post("webhooks/new", s.get("webhooks/new").form(fine...)).want(http.StatusConflict).says("limit of webhooks")
}

func TestEditWebhook(t *testing.T) {
	r := newReceiver(t)
	s, w := newDelivering(t, r)
	path := "webhooks/" + w.ID
	form := s.get(path+"/edit").want(http.StatusOK).form("url", r.URL+"/new", "events", "files.expiring")
	s.follow(s.post(path+"/edit", form)).want(http.StatusOK).says("Changes saved.", r.URL+"/new", "Balance threshold Default")
	if got := s.webhook(w.ID); got.URL != r.URL+"/new" || got.Threshold != 0 || !slices.Equal(got.Events, []webhooks.EventType{alerts.TypeFilesExpiring}) {
		t.Errorf("got %+v", got)
	}
	// A form with an outdated version must not undo the change unless the user submits it again.
	form.Set("url", r.URL+"/late")
	again := s.post(path+"/edit", form).want(http.StatusConflict).says("changed since you opened the form")
	if got := s.webhook(w.ID).URL; got != r.URL+"/new" {
		t.Errorf("got %s", got)
	}
	s.follow(s.post(path+"/edit", again.form("url", r.URL+"/late", "events", "files.expiring"))).want(http.StatusOK).says(r.URL + "/late")
	s.post(path+"/edit", again.form("url", "late")).want(http.StatusUnprocessableEntity).says("Must begin with https://.", "Select at least one event")
}

// The form sets, changes and removes headers. No page shows a secret value, not even a refused
// form.
func TestWebhookHeaders(t *testing.T) {
	s := newSite(t, storageapi.Config{})
	const secret, other = "h3ader-s3cret", "0ther-s3cret"
	form := s.get("webhooks/new").form("url", "https://example.com/hooks", "events", "balance.low", "headers", "X-Team: a: b\r\nX-Old: 1", "secrets", "Authorization: Bearer "+secret+"\r\n\r\nX-Token:"+secret)
	form.Set("url", "http://example.com")
	s.post("webhooks/new", form).want(http.StatusUnprocessableEntity).says("X-Team: a: b").hides(secret)
	form.Set("url", "https://example.com/hooks")
	s.post("webhooks/new", form).want(http.StatusOK).hides(secret)
	id := s.webhooks()[0].ID
	wantHeaders := func(want ...webhooks.Header) {
		t.Helper()
		if got := s.webhook(id).Headers; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	wantHeaders(webhooks.Header{Name: "Authorization", Value: "Bearer " + secret, Secret: true}, webhooks.Header{Name: "X-Old", Value: "1"},
		webhooks.Header{Name: "X-Team", Value: "a: b"}, webhooks.Header{Name: "X-Token", Value: secret, Secret: true})
	s.get("webhooks/"+id).want(http.StatusOK).says("Authorization: [redacted]", "X-Team: a: b").hides(secret)

	edit := s.get("webhooks/" + id + "/edit").want(http.StatusOK).says("Remove X-Token").hides(secret)
	saved := edit.form("url", "https://example.com/hooks", "events", "balance.low", "headers", "X-Team: c", "secrets", "authorization: "+other, "remove", "X-Token")
	s.post("webhooks/"+id+"/edit", saved).want(http.StatusSeeOther)
	wantHeaders(webhooks.Header{Name: "Authorization", Value: other, Secret: true}, webhooks.Header{Name: "X-Team", Value: "c"})

	for _, invalid := range []string{"X-Team", "Host: example.com", "X A: 1", strings.Repeat("X-A: 1\n", 2)} {
		form := s.get("webhooks/"+id+"/edit").form("url", "https://example.com/hooks", "events", "balance.low", "headers", invalid, "secrets", "X-Token: "+secret)
		s.post("webhooks/"+id+"/edit", form).want(http.StatusUnprocessableEntity).hides(secret, other)
	}
	wantHeaders(webhooks.Header{Name: "Authorization", Value: other, Secret: true}, webhooks.Header{Name: "X-Team", Value: "c"})
}

// The form sets and changes the signatures. The webhook's page shows its public keys, and the page of
// a delivery only the headers that were sent.
func TestWebhookSignatures(t *testing.T) {
	r := newReceiver(t)
	s, old := newDelivering(t, r)
	made := s.post("webhooks/new", s.get("webhooks/new").form("url", r.URL, "events", "balance.low", "signatures", "v1a")).want(http.StatusOK).
		says("the public key on the webhook’s page verifies that events come from us").hides("openssl")
	id := s.webhooks()[0].ID
	w := s.webhook(id)
	if diff := cmp.Diff([]signing.Scheme{signing.V1a}, w.Signatures); diff != "" || id == old.ID || made.secret() != w.Secret.Reveal() {
		t.Fatalf("created with signatures (-want +got):\n%s", diff)
	}
	s.get("webhooks/"+id).want(http.StatusOK).says("Public key only", w.Secret.PublicKey().String()).hides("Previous public key")
	s.get("webhooks/" + old.ID).want(http.StatusOK).hides("Public key")
	sent := s.post("webhooks/"+id+"/test", s.get("webhooks/"+id).form()).want(http.StatusOK).text()
	if !strings.Contains(sent, "Webhook-Signature [redacted]") || strings.Contains(sent, "X-Service-Signature [redacted]") {
		t.Errorf("the headers of the test event are not those sent: %s", sent)
	}
	rotated, err := s.api.Webhooks.RotateSecret(t.Context(), s.account, id, webhooks.RotateParams{Grace: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	s.get("webhooks/"+id).says("Public key "+rotated.Secret.PublicKey().String(), "Previous public key "+w.Secret.PublicKey().String())

	edit := s.get("webhooks/" + id + "/edit").want(http.StatusOK)
	if !strings.Contains(edit.body, `<option value="v1a" selected>`) {
		t.Error("the form does not show the signatures")
	}
	change := func(values ...string) []signing.Scheme {
		t.Helper()
		form := s.get("webhooks/" + id + "/edit").form(append(values, "url", r.URL, "events", "balance.low")...)
		s.post("webhooks/"+id+"/edit", form).want(http.StatusSeeOther)
		return s.webhook(id).Signatures
	}
	for _, test := range []struct {
		values []string
		want   []signing.Scheme
	}{
		{nil, []signing.Scheme{signing.V1a}}, {[]string{"signatures", "v1 v1a"}, []signing.Scheme{signing.V1, signing.V1a}}, {[]string{"signatures", "v1"}, nil},
	} {
		if diff := cmp.Diff(test.want, change(test.values...)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", test.values, diff)
		}
	}
	s.post("webhooks/"+id+"/edit", s.get("webhooks/"+id+"/edit").form("url", r.URL, "events", "balance.low", "signatures", "v2")).
		want(http.StatusUnprocessableEntity).says("Must be v1, v1a or both.")
}

func TestPauseWebhook(t *testing.T) {
	r := newReceiver(t)
	s, w := newDelivering(t, r)
	path := "webhooks/" + w.ID
	ask := s.get(path+"/pause").want(http.StatusOK).says("Pause this webhook?", "4 hours", "Until a date")
	for invalid, values := range map[string][]string{
		"Select how long to pause.":  {"for", "1s"},
		"Enter when the pause ends.": {"for", "date"},
		"Enter a date and time":      {"for", "date", "until", "soon"},
		"Must be in the future":      {"for", "date", "until", "2020-01-01T00:00"},
	} {
		s.post(path+"/pause", ask.form(values...)).want(http.StatusUnprocessableEntity).says(invalid)
	}
	for choice, want := range map[string]time.Duration{"1h": time.Hour, "4h": 4 * time.Hour, "24h": 24 * time.Hour} {
		s.post(path+"/pause", ask.form("for", choice)).want(http.StatusSeeOther)
		if off := time.Until(s.webhook(w.ID).PausedUntil) - want; off.Abs() > time.Minute {
			t.Errorf("%s pauses for %v", choice, want+off)
		}
	}
	s.follow(s.post(path+"/pause", ask.form("for", "date", "until", "2999-01-31T12:00"))).says("Webhook paused.", "Paused until", "0 events pending.", "Resume").hides("Pause…", ">On<")
	if got, want := s.webhook(w.ID).PausedUntil, time.Date(2999, 1, 31, 12, 0, 0, 0, time.UTC); !got.Equal(want) {
		t.Errorf("paused until %v, want %v", got, want)
	}
	if err := s.api.Webhooks.Publish(t.Context(), webhooks.Event{ID: "evt_paused", Account: alice, Data: alerts.BalanceLow{Balance: 1, Threshold: 2}}); err != nil {
		t.Fatal(err)
	}
	s.follow(s.post(path+"/deliveries/evt_paused", nil)).says("Queued until the webhook’s pause ends.")
	page := s.follow(s.post(path+"/pause", ask.form("for", "never"))).says("Events wait until you resume the webhook.", "1 event pending.")
	s.get("webhooks").says("Paused").hides(">On<")
	resumed := s.follow(s.post(path+"/pause", page.form("for", "resume"))).says("Webhook resumed.", "Pause…").hides("Paused")
	if !s.webhook(w.ID).PausedUntil.IsZero() {
		t.Errorf("still paused: %s", resumed.body)
	}
	s.get("audit-log?target="+w.ID).says("Webhook paused", "paused until", "Webhook resumed")
}

// The pages must show that a webhook is on hold. Only its own account may release it.
func TestReleaseWebhook(t *testing.T) {
	store := memory.New()
	s := newSite(t, storageapi.Config{Store: store})
	w, err := s.api.Webhooks.Create(t.Context(), alice, webhooks.CreateParams{URL: "https://example.com/", Events: alerts.EventTypes()})
	if err != nil {
		t.Fatal(err)
	}
	_, err = store.UpdateWebhook(t.Context(), alice, w.ID, func(w *webhooks.Webhook, _ *audit.Entry) error {
		w.Held = true
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	path := "webhooks/" + w.ID
	s.get("webhooks").want(http.StatusOK).says("On hold", "restored from a backup").hides(">On<")
	s.post(path+"/test", nil).want(http.StatusConflict).says("once the webhook is released")
	if err := s.api.Webhooks.Publish(t.Context(), webhooks.Event{ID: "evt_1", Account: alice, Data: alerts.BalanceLow{Balance: 1, Threshold: 2}}); err != nil {
		t.Fatal(err)
	}
	s.follow(s.post(path+"/deliveries/evt_1", nil)).says("Queued until the webhook is released.")
	held := s.get(path).want(http.StatusOK).says("On hold", "Release").hides("Send test event")
	s.account = bob
	s.post(path+"/release", nil).want(http.StatusNotFound)
	s.account = alice
	if !s.webhook(w.ID).Held {
		t.Error("bob released it")
	}
	s.follow(s.post(path+"/release", held.form())).want(http.StatusOK).says("Webhook released.", "Send test event").hides("On hold")
	if s.webhook(w.ID).Held {
		t.Error("it is on hold")
	}
}

func TestEnableAndDisableWebhook(t *testing.T) {
	r := newReceiver(t)
	s, w := newDelivering(t, r)
	path := "webhooks/" + w.ID
	s.follow(s.post(path+"/turn", s.get(path+"/turn").form())).says("Webhook turned off.", "Turn on")
	if s.webhook(w.ID).Active {
		t.Error("it is on")
	}
	s.follow(s.post(path+"/turn", s.get(path).form())).says("Webhook turned on.", "Turn off").hides("skipped")
	s.post(path+"/turn", nil).want(http.StatusBadRequest)

	r.answer(http.StatusGone, "")
	s.publish(w.ID, "evt_gone")
	s.get(path).says("Off", "responded 410 Gone")
	s.get("webhooks").says("Off", "responded 410 Gone", "0% of 1")
}

// The pages must warn, before and after a user disables a webhook, that it will skip events. When
// the webhook is enabled again, they must offer to resend the skipped events.
func TestEnableWebhook_EventsWereSkipped_OffersResend(t *testing.T) {
	r := newReceiver(t)
	s, w := newDelivering(t, r)
	path := "webhooks/" + w.ID
	s.publish(w.ID, "evt_before")
	off := s.get(s.get(path).leadsTo("Turn off…")).want(http.StatusOK).says("Turn off this webhook?", "Events published while it is off are skipped")
	s.follow(s.post(path+"/turn", off.form())).says("Events published from now on are skipped.").hides("until you turn it back on", "so far")
	s.get(path + "/turn").want(http.StatusSeeOther) // already disabled
	s.publish(w.ID, "evt_1")
	s.get(path).says("1 event was skipped so far.", "turning it on does not send them")
	s.publish(w.ID, "evt_2")
	s.publish(w.ID, "evt_3")

	on := s.follow(s.post(path+"/turn", s.get(path).form())).says("Webhook turned on.", "3 events were skipped while the webhook was off.")
	form := s.get(on.leadsTo("Resend skipped events…")).want(http.StatusOK)
	since := s.field(form, "from")
	if at, err := time.Parse("2006-01-02T15:04", since); err != nil || time.Since(at) > 3*time.Minute || at.After(time.Now()) {
		t.Errorf("the form is filled in with %q, want when the webhook was turned off (%v)", since, err)
	}
	if !strings.Contains(form.body, `value="skipped" checked`) || strings.Contains(form.body, `value="dead" checked`) {
		t.Errorf("want only skipped events in:\n%s", form.body)
	}
	begun := s.post(path+"/recover", form.form("state", "skipped", "from", since))
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(s.follow(begun).text(), "All 3 events were sent again."); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(s.follow(begun).text())
		}
	}
	s.get(path).hides("were skipped while")
	s.get(path + "?done=on&off=yesterday").want(http.StatusOK).hides("were skipped while")
}

// field returns the value of the input field with this name.
func (s *site) field(p *page, name string) string {
	s.Helper()
	_, rest, found := strings.Cut(p.body, `name="`+name+`"`)
	_, rest, _ = strings.Cut(rest, `value="`)
	value, _, ended := strings.Cut(rest, `"`)
	if !found || !ended {
		s.Fatalf("no field %q in:\n%s", name, p.body)
	}
	return value
}

func TestFailingWebhook(t *testing.T) {
	r := newReceiver(t)
	s, w := newDelivering(t, r)
	r.answer(http.StatusInternalServerError, "")
	s.publish(w.ID, "evt_1")
	s.get("webhooks").says("Failing", "Every attempt has failed since").hides("turned off") // one failed event is not enough to disable the webhook

	for i := 2; !s.stats(w.ID).LimiterState.Open; i++ {
		if i > 100 {
			t.Fatal("it never counts as down")
		}
		s.publish(w.ID, fmt.Sprintf("evt_%d", i))
	}
	off := s.webhook(w.ID).FailingSince.Add(5 * 24 * time.Hour).UTC().Format("2 Jan 2006, 15:04 UTC")
	s.get("webhooks").says("Failing", "Will be turned off on "+off).hides(">On<")
	s.get("webhooks/"+w.ID).says("Failing", "Every attempt has failed since", "We send one event at a time", "Will be turned off on "+off).hides(">On<")
}

func (s *site) stats(webhook string) webhooks.WebhookStats {
	s.Helper()
	stats, err := s.api.Webhooks.WebhookStats(s.Context(), alice, webhook)
	if err != nil {
		s.Fatal(err)
	}
	return stats
}

func TestRotateSecret(t *testing.T) {
	s, w := newDelivering(t, newReceiver(t))
	path := "webhooks/" + w.ID + "/rotate"
	form := s.get(path).want(http.StatusOK).form("grace", "1h")
	secret := s.post(path, form).want(http.StatusOK).says("Secret rotated", "The previous secret also signs until").secret()
	if got := s.webhook(w.ID); got.Secret.Reveal() != secret || got.PreviousSecret.Reveal() != w.Secret.Reveal() {
		t.Errorf("got %+v", got)
	}
	s.get("webhooks/"+w.ID).says("The secret was rotated.").hides(secret, w.Secret.Reveal())
	if again := s.post(path, form).want(http.StatusConflict).hides(secret, w.Secret.Reveal()); again.secret() != "" || s.webhook(w.ID).Secret.Reveal() != secret {
		t.Error("a form that was sent again rotated again")
	}
	s.post(path, s.get(path).says("The previous secret still signs").form("grace", "0s")).want(http.StatusOK).says("no longer signs")
	s.post(path, s.get(path).form("grace", "-1h")).want(http.StatusUnprocessableEntity).says("Select one of the options.")
}

func TestTestWebhook(t *testing.T) {
	r := newReceiver(t)
	s, w := newDelivering(t, r)
	path := "webhooks/" + w.ID
	r.answer(http.StatusTeapot, markup)
	got := s.post(path+"/test", nil).want(http.StatusOK).says("Test result", "418 I'm a teapot", "Webhook-Signature [redacted]")
	checkMarkup(t, got)
	received := r.header.Load().(http.Header)
	s.post(path+"/test", url.Values{"type": {"balance.low"}}).want(http.StatusOK).says(`"type": "balance.low"`)
	s.post(path+"/test", url.Values{"type": {"nope"}}).want(http.StatusBadRequest)
	got.hides(w.Secret.Reveal(), received.Get("Webhook-Signature"), received.Get("X-Service-Signature")).says(received.Get("Webhook-Id"), received.Get("User-Agent"))
	r.Close()
	s.post(path+"/test", nil).want(http.StatusOK).says("connection refused by ", "No request was sent.")
}

func TestDeleteWebhook(t *testing.T) {
	s, w := newDelivering(t, newReceiver(t))
	path := "webhooks/" + w.ID + "/delete"
	s.get(path).want(http.StatusOK).says("Delete this webhook?", w.URL)
	s.follow(s.post(path, nil)).says("Webhook deleted", "No webhooks yet")
	s.post(path, nil).want(http.StatusNotFound)
}

func TestWebhookPages(t *testing.T) {
	s := newSite(t, storageapi.Config{})
	for i := range 21 {
		if _, err := s.api.Webhooks.Create(t.Context(), alice, webhooks.CreateParams{URL: fmt.Sprintf("https://example.com/%02d", i), Events: alerts.EventTypes()}); err != nil {
			t.Fatal(err)
		}
	}
	first := s.get("webhooks").says("example.com/20", "example.com/01", "1–20 of 21", "Older", "No attempts in the last 24 hours").hides("example.com/00")
	_, after, _ := strings.Cut(first.body, `webhooks?after=`)
	after, _, _ = strings.Cut(after, `"`)
	s.get("webhooks?after="+html.UnescapeString(after)).says("example.com/00", "21 of 21", "Newest").hides("example.com/01", "Older")
}
