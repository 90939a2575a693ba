package e2e

import (
	"testing"

	"github.com/storageapi/storageapi/alerts"
)

// A user searches for a key and reads who changed it. This must work with and without scripts.
func TestSearchAndHistory(t *testing.T) {
	s := newSite(t)
	webhook := s.subscribe("/hooks", alerts.TypeBalanceLow)
	event := s.publish(low)[0]
	for _, bare := range []bool{false, true} {
		w := s.open(t)
		name := "with scripts"
		if bare {
			w.withoutScripts()
			name = "without"
		}
		w.visit("api-keys/new")
		w.fill("name", name)
		w.check("scopes", "files:read")
		w.click("Create key")
		w.see("API key created")
		token, key := w.secret(), s.keys()[0].ID
		look := func(text string) {
			w.visit("webhooks")
			eval[bool](w, `document.querySelector("[name=q]").select(), document.querySelector("[name=q]").focus(), true`)
			w.press(text)
			w.click("Search")
		}
		look(name)
		w.at("api-keys/" + key)
		w.click("View audit log")
		w.at("audit-log?target=" + key)
		w.see("Key created", "127.0.0.1")
		look(event)
		w.at("webhooks/" + webhook.ID + "/deliveries/" + event)
		look("balance.low")
		w.at("events?type=balance.low")
		w.see(event, "1 webhook", "1 delivered")
		w.click("Low balance")
		w.at("events/" + event)
		w.see(s.receiver.URL+"/hooks", "Delivered")
		look(token)
		w.at("api-keys/" + key) // found by the key's hint
		w.gone(token)
		w.click("Audit log")
		w.see("Webhook created", "Key created")
	}
}
