package dashboard

import (
	"bytes"
	"net/http"
)

// A response is the response to a call: a page or a redirect to a page.
type response struct {
	status   int    // default: 200
	page     string // the template
	data     any
	title    string
	tab      string // the selected tab in the navigation
	replace  string // the page shown after a reload, relative to the root; default: the form's page
	query    string // the text in the search field
	refresh  bool   // the page is still changing, so scripts reload it
	redirect string // if set, redirect to this page, relative to the root
}

// goTo returns a redirect to a page, which then shows the notice with the given name; see messages.
func goTo(page, notice string) response {
	if notice != "" {
		page += "?done=" + notice
	}
	return response{redirect: page}
}

// write sends a response to the browser.
func (p *pages) write(w http.ResponseWriter, c *call, a response) {
	if a.redirect != "" {
		w.Header().Set("Location", c.root+a.redirect) // relative: a proxy may strip a prefix
		w.WriteHeader(http.StatusSeeOther)
		return
	}
	if a.status == 0 {
		a.status = http.StatusOK
	}
	var body bytes.Buffer
	if err := p.render(&body, c, a); err != nil {
		p.log.ErrorContext(c.Context(), "dashboard: rendering a page failed", "page", a.page, "error", err)
		http.Error(w, "Something went wrong.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(a.status)
	_, _ = w.Write(body.Bytes()) // the browser may have disconnected
}

// messages maps names to the notices that pages show after a redirect.
var messages = map[string]string{
	"renamed":      "Key renamed.",
	"paused":       "Key paused. Requests with it are now rejected.",
	"resumed":      "Key resumed. Requests with it are accepted again.",
	"revoked":      "Key revoked. Requests with it are now rejected.",
	"saved":        "Changes saved.",
	"on":           "Webhook turned on. Pending events are sent now.",
	"off":          "Webhook turned off. Pending events wait. Events published from now on are skipped.",
	"released":     "Webhook released. Pending events are sent once it is on.",
	"deleted":      "Webhook deleted.",
	"redelivered":  "Queued to be sent again.",
	"waits":        "Queued until you turn the webhook back on.",
	"held":         "Queued until the webhook is released.",
	"pause":        "Queued until the webhook’s pause ends.",
	"hook-paused":  "Webhook paused. Events wait until the pause ends.",
	"hook-resumed": "Webhook resumed. Events that have waited are sent now.",
}
