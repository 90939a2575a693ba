package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/webhooks"
)

func TestWebhooks(t *testing.T) {
	s := newSite(t)
	w := s.open(t)
	w.expect("status of 422")
	w.visit("webhooks")
	w.click("Create your first webhook")
	w.see("Create webhook")
	w.fill("url", "http://example.com/hooks")
	w.fill("threshold", "a lot")
	w.click("Create webhook")
	w.see("Must begin with https://.", "Select at least one event", "Must be a decimal amount of SUI")
	w.fill("url", s.receiver.URL+"/hooks")
	w.check("events", "balance.low")
	w.check("events", "files.expiring")
	w.fill("threshold", "12.5")
	w.click("Create webhook")
	w.see("Webhook created", "You won’t be able to see it again.")
	secret := w.secret()
	s.receiver.trust(t, secret)
	list, err := s.api.Webhooks.List(t.Context(), account, webhooks.WebhookQuery{Limit: 10})
	if err != nil || len(list.Webhooks) != 1 || list.Webhooks[0].Threshold != 12_500_000_000 || len(list.Webhooks[0].Events) != 2 {
		t.Fatalf("got %+v, %v", list, err)
	}
	path := "webhooks/" + list.Webhooks[0].ID
	w.again("reload")
	w.at(path)
	w.gone(secret)

	// The result of a test event shows the response.
	w.see("Nothing sent yet")
	s.receiver.answer(http.StatusAccepted, "got it", 0)
	w.click("Send test event")
	w.see("Test result", "202 Accepted", "got it")
	w.click("Request headers")
	w.see("X-Service-Signature [redacted]", "Webhook-Signature [redacted]", "storageapi-webhooks/1")
	w.again("reload")
	w.at(path)
	if strings.Contains(w.text(), "Test result") {
		t.Error("the test is shown, or sent, again")
	}

	// One delivery fails and is resent.
	s.publish(low)
	s.receiver.answer(http.StatusServiceUnavailable, "try later", 0)
	dead := s.publish(low)[0]
	w.visit(path)
	w.see("50%")
	w.click("All deliveries")
	w.at(path + "/deliveries")
	w.see("Delivered", "Failed")
	w.check("state", "dead")
	w.click("Filter")
	w.see("Clear")
	if rows := eval[int](w, `document.querySelectorAll("tbody tr").length`); rows != 1 {
		t.Errorf("%d rows", rows)
	}
	w.click("Low balance")
	w.at(path + "/deliveries/" + dead)
	w.see("503 Service Unavailable", "try later")
	s.receiver.answer(http.StatusOK, "at last", 0)
	release := s.receiver.hold()
	w.click("Resend")
	w.see("Queued to be sent again.", "Pending")
	release()
	w.see("Attempt 2", "at last", "Delivered") // the page reloads itself, without a click
	s.receiver.verified(t)

	// Disable, enable and edit the webhook.
	w.visit(path)
	w.click("Turn off…")
	w.see("Turn off this webhook?", "Events published while it is off are skipped")
	w.click("Turn off")
	w.see("Webhook turned off.", "Events published from now on are skipped.")
	s.publish(low)
	w.click("Turn on")
	w.see("Webhook turned on.", "1 event was skipped while the webhook was off.", "Resend skipped events…")
	w.click("Edit")
	w.see("Edit webhook")
	w.check("events", "files.expiring")
	w.click("Save changes")
	w.see("Changes saved.")
	if strings.Contains(w.text(), "files.expiring") {
		t.Error("the events are as before")
	}

	// After a rotation, both secrets sign.
	w.click("Rotate secret…")
	w.see("Rotate signing secret", "1 day")
	w.click("Rotate secret")
	w.see("Secret rotated")
	next := w.secret()
	if next == secret {
		t.Error("the secret is as before")
	}
	s.receiver.trust(t, next)
	s.publish(low)
	s.receiver.trust(t, secret)
	s.publish(low)
	s.receiver.verified(t)
	w.click("I’ve copied it")
	w.see("The secret was rotated.")
	w.gone(next)

	w.click("Delete…")
	w.see("Delete this webhook?", s.receiver.URL+"/hooks")
	w.click("Delete webhook")
	w.see("Webhook deleted", "No webhooks yet")
}

// The user resends deliveries in the list one by one and several at once, with and without scripts.
func TestResend(t *testing.T) {
	for _, scripts := range []bool{true, false} {
		t.Run(fmt.Sprintf("scripts=%v", scripts), func(t *testing.T) {
			s := newSite(t)
			webhook := s.subscribe("/hooks", alerts.TypeBalanceLow)
			s.receiver.answer(http.StatusServiceUnavailable, "", 0)
			dead := s.publish(low, low, low, low)
			s.receiver.answer(http.StatusOK, "", 0)
			w := s.open(t)
			if !scripts {
				w.withoutScripts()
			}
			list := "webhooks/" + webhook.ID + "/deliveries?state=dead"
			rows := func() int { return eval[int](w, `document.querySelectorAll("tbody tr").length`) }
			w.visit(list)
			w.click("Resend " + dead[0])
			w.see("Queued to be sent again.")
			s.settled(dead[0])
			w.visit(list)
			if n := rows(); n != 3 {
				t.Errorf("%d rows are left, want 3", n)
			}
			w.check("event", dead[1])
			w.check("event", dead[2])
			w.click("Resend selected")
			w.see("Queued to be sent again.", dead[3])
			s.settled(dead[1])
			s.settled(dead[2])
			w.visit(list)
			if n := rows(); n != 1 {
				t.Errorf("%d rows are left, want 1", n)
			}
			if scripts {
				w.run(chromedp.Click(chromedp.CSS("[data-all]")))
			} else {
				w.check("event", dead[3])
			}
			w.click("Resend selected")
			w.see("Queued to be sent again.")
			s.settled(dead[3])
			w.visit(list)
			w.see("No matching deliveries")
		})
	}
}

// The page must update the progress of a recovery without a click. Without scripts, the page must
// also update the progress, but may be slower.
func TestRecovery(t *testing.T) {
	for _, scripts := range []bool{true, false} {
		t.Run(fmt.Sprintf("scripts=%v", scripts), func(t *testing.T) {
			s := newSite(t)
			webhook := s.subscribe("/hooks", alerts.TypeBalanceLow)
			s.receiver.answer(http.StatusServiceUnavailable, "", 0)
			s.publish(low, low, low)
			s.receiver.answer(http.StatusOK, "", 0)
			s.publish(low) // keeps the webhook from counting as down
			off := false
			if _, err := s.api.Webhooks.Update(t.Context(), account, webhook.ID, webhooks.UpdateParams{Active: &off}); err != nil {
				t.Fatal(err)
			}
			s.publish(low, low)
			w := s.open(t)
			w.expect("status of 422")
			if !scripts {
				w.withoutScripts()
			}
			path := "webhooks/" + webhook.ID
			w.visit(path + "/recover")
			w.check("state", "dead")
			w.check("state", "skipped")
			w.check("state", "pending")
			w.click("Resend events")
			w.see("Select at least one.")
			w.check("state", "dead")
			w.check("state", "skipped")
			w.click("Resend events")
			w.see("5 events queued", "They are sent when you turn the webhook back on.")

			release := s.receiver.hold()
			on := true
			if _, err := s.api.Webhooks.Update(t.Context(), account, webhook.ID, webhooks.UpdateParams{Active: &on}); err != nil {
				t.Fatal(err)
			}
			w.again("reload")
			w.see("5 events queued. 5 are waiting in all.")
			release()
			w.see("All 5 events were sent again.")
		})
	}
}

// markup would run a script if a page did not escape it.
const markup = `"><script>alert(1)</script><img src=x onerror=alert(2)><svg onload=alert(3)>`

// Pages must show text from other parties unchanged and must not execute it.
func TestMarkup(t *testing.T) {
	s := newSite(t)
	webhook := s.subscribe("/hooks", alerts.TypeBalanceLow)
	s.receiver.answer(http.StatusServiceUnavailable, markup, 0)
	dead := s.publish(low)[0]
	w := s.open(t)
	w.visit("api-keys/new")
	w.fill("name", markup)
	w.check("scopes", "files:read")
	w.click("Create key")
	w.see("API key created", markup)
	key := s.keys()[0].ID
	for _, path := range []string{"api-keys", "api-keys/" + key, "api-keys/" + key + "/revoke", "webhooks/" + webhook.ID + "/deliveries/" + dead} {
		w.visit(path)
		w.see(markup)
	}
	w.visit("webhooks/" + webhook.ID)
	w.click("Send test event")
	w.see(markup)
	w.visit("api-keys")
	w.click("Revoke")
	w.see("Revoke “" + markup + "”?")
	if n := eval[int](w, `document.querySelectorAll("main script, main img, dialog script, dialog img").length`); n != 0 {
		t.Errorf("%d elements were made of what others wrote", n)
	}
	// Even if a page did not escape markup, the Content-Security-Policy must block it.
	w.expect("404")
	eval[bool](w, `document.querySelector("main").insertAdjacentHTML("beforeend", "<img src=x onerror='document.title = \"ran\"'>"), true`)
	w.hear("Content Security Policy")
	if title := eval[string](w, `document.title`); title == "ran" {
		t.Error("a handler in the page ran")
	}
}
