package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A view is a page of the site that a story has set up.
type view struct {
	name string
	path string
	more func(*window) // actions to take on the page
}

func (s *story) views() []view {
	webhook := "webhooks/" + s.webhook.ID
	return []view{
		{name: "keys", path: "api-keys"},
		{name: "keys-revoke", path: "api-keys", more: func(w *window) {
			w.click("Revoke CI deploy")
			w.see("Revoke “CI deploy”?")
		}},
		{name: "key-new", path: "api-keys/new"},
		{name: "key-refused", path: "api-keys/new", more: func(w *window) {
			w.check("expiry", "date")
			w.click("Create key")
			w.see("Enter a name")
		}},
		{name: "key-made", path: "api-keys/new", more: func(w *window) {
			w.fill("name", "Nightly report")
			w.check("scopes", "files:read")
			w.click("Create key")
			w.see("API key created")
		}},
		{name: "key", path: "api-keys/" + s.key.ID},
		{name: "key-rotate", path: "api-keys/" + s.key.ID + "/rotate"},
		{name: "webhooks", path: "webhooks"},
		{name: "webhook-new", path: "webhooks/new"},
		{name: "webhook", path: webhook},
		{name: "webhook-down", path: "webhooks/" + s.down.ID, more: func(w *window) {
			w.see("Failing", "Will be turned off on")
		}},
		{name: "webhook-test", path: webhook, more: func(w *window) {
			w.click("Send test event")
			w.see("Test result")
		}},
		{name: "webhook-edit", path: webhook + "/edit"},
		{name: "webhook-rotate", path: webhook + "/rotate"},
		{name: "webhook-off", path: webhook + "/turn"},
		{name: "webhook-delete", path: webhook + "/delete"},
		{name: "deliveries", path: webhook + "/deliveries"},
		{name: "deliveries-refused", path: webhook + "/deliveries?from=2026-01-02T00:00&to=2026-01-01T00:00"},
		{name: "deliveries-resent", path: webhook + "/deliveries", more: func(w *window) {
			w.click("Resend selected")
			w.see("Nothing was resent.")
		}},
		{name: "deliveries-none", path: webhook + "/deliveries?state=skipped"},
		{name: "delivery", path: webhook + "/deliveries/" + s.dead},
		{name: "recover", path: webhook + "/recover"},
		{name: "recovery", path: webhook + "/recover", more: func(w *window) {
			w.click("Resend events")
			w.see("Done")
		}},
		{name: "events", path: "events", more: func(w *window) { w.see("2 webhooks") }},
		{name: "events-none", path: "events?type=balance.low&to=2020-01-01T00:00", more: func(w *window) { w.see("No matching events") }},
		{name: "event", path: "events/" + s.dead},
		{name: "audit-log", path: "audit-log", more: func(w *window) { w.see("Key rotated", "Webhook created") }},
		{name: "audit-log-key", path: "audit-log?target=" + s.key.ID, more: func(w *window) { w.see("Key rotated", "CI deploy") }},
		{name: "audit-log-webhook", path: "audit-log?target=" + s.webhook.ID},
		{name: "search", path: "search?q=o", more: func(w *window) { w.see("Results for", "CI deploy", "/storage/events") }},
		{name: "search-event", path: "search?q=" + s.dead, more: func(w *window) { w.see("Bandwidth limit reached") }},
		{name: "search-types", path: "search?q=limit", more: func(w *window) { w.see("Event types", "bandwidth.limit_reached") }},
		{name: "search-none", path: "search?q=zzz", more: func(w *window) { w.see("No matches") }},
		{name: "search-empty", path: "search"},
		{name: "nothing", path: "nothing"},
	}
}

// TestLook visits every page in light and dark mode, with the window sizes of a desktop and a
// phone. No text may be cut off, and axe-core must report no violations.
func TestLook(t *testing.T) {
	s := newStory(t)
	for _, dark := range []bool{false, true} {
		for _, width := range []int64{1180, 360} {
			t.Run(fmt.Sprintf("dark=%v,width=%d", dark, width), func(t *testing.T) {
				w := s.open(t)
				w.expect("the server responded with a status of 4")
				w.dark(dark)
				w.size(width, 800)
				for _, view := range s.views() {
					w.visit(view.path)
					if view.more != nil {
						view.more(w)
					}
					w.fits(view.name)
					w.axe(view.name)
					if width > 1000 && !dark { // also check widths between the two
						for _, between := range []int64{390, 768} {
							w.size(between, 800)
							w.fits(view.name)
						}
						w.size(width, 800)
					}
					if *pictures != "" {
						w.picture(filepath.Join(*pictures, fmt.Sprintf("%s-dark=%v-%d.png", view.name, dark, width)))
					}
				}
			})
		}
	}
	empty := newSite(t)
	w := empty.open(t)
	for _, path := range []string{"api-keys", "webhooks", "events", "audit-log"} {
		w.visit(path)
		w.see("yet")
		w.axe("empty " + path)
		if *pictures != "" {
			w.picture(filepath.Join(*pictures, "empty-"+path+".png"))
		}
	}
}

// TestAuditLogLayout checks the layout of the audit log. On a desktop, an address must fit on one
// line and all filters in one row. On a phone, there must be a gap between the line below the
// selected tab and the search field.
func TestAuditLogLayout(t *testing.T) {
	s := newSite(t)
	w := s.open(t)
	w.visit("api-keys/new")
	w.fill("name", "a key")
	w.check("scopes", "files:read")
	w.click("Create key")
	w.see("API key created")
	w.size(1280, 900)
	w.visit("audit-log")
	w.see("127.0.0.1")
	if lines := eval[float64](w, `(() => { const all = document.createRange(); all.selectNodeContents(document.querySelector(".past td:nth-child(3)").firstChild); return all.getClientRects().length })()`); lines != 1 {
		t.Errorf("the address takes %v lines", lines)
	}
	for _, path := range []string{"audit-log", "api-keys"} {
		w.visit(path)
		if height := eval[float64](w, `document.querySelector(".filters").clientHeight`); height > 120 {
			t.Errorf("%s: the filters are %v pixels high, more than one row", path, height)
		}
	}
	w.size(390, 800)
	w.visit("audit-log")
	if gap := eval[float64](w, `document.querySelector(".search input").getBoundingClientRect().top - document.querySelector(".top nav").getBoundingClientRect().bottom`); gap < 8 {
		t.Errorf("the search field is %v pixels below the tabs", gap)
	}
}

// fits fails the test if the page is wider than the window or the text of a cell overflows the
// cell.
func (w *window) fits(name string) {
	w.Helper()
	width := eval[int](w, `innerWidth`)
	if over := eval[float64](w, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
		w.Errorf("%s is %v pixels too wide at %d", name, over, width)
	}
	if cells := eval[[]string](w, `[...document.querySelectorAll("td, .figures dd")].filter((cell) => cell.scrollWidth > cell.clientWidth + 1).map((cell) => cell.innerText)`); len(cells) > 0 {
		w.Errorf("%s at %d: cells overflow: %q", name, width, cells)
	}
}

// axe fails the test if axe-core reports violations on the page.
func (w *window) axe(name string) {
	w.Helper()
	source, err := os.ReadFile("node_modules/axe-core/axe.min.js")
	if err != nil {
		missing(w.T, `needs axe-core: "npm ci" in dashboard/e2e`)
	}
	eval[bool](w, string(source)+"; true")
	found := eval[[]string](w, `axe.run(document, {resultTypes: ["violations"]}).then((results) => results.violations.flatMap(
		(rule) => rule.nodes.map((node) => rule.id + ": " + rule.help + ": " + node.html + " " + node.any.map((check) => check.message).join("; "))))`)
	if len(found) > 0 {
		w.Errorf("axe-core finds on %s:\n%s", name, strings.Join(found, "\n"))
	}
}
