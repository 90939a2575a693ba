package dashboard

import (
	"bytes"
	"net/http"
)

// An answer is a page, or a redirect to one.
type answer struct {
	status   int    // default: 200
	page     string // the template
	data     any
	title    string
	tab      string // the current tab of the navigation
	replace  string // the page shown after a reload, relative to the root; default: the page of the form
	query    string // the search query
	refresh  bool   // the page keeps changing, so scripts reload it
	redirect string // redirect there instead, relative to the root
}

// goTo returns a redirect to another page, which shows the named notice; see messages.
func goTo(page, notice string) answer {
	if notice != "" {
		page += "?done=" + notice
	}
	return answer{redirect: page}
}

// write writes an answer.
func (p *pages) write(w http.ResponseWriter, c *call, a answer) {
	if a.redirect != "" {
		w.Header().Set("Location", c.root+a.redirect) // relative: a prefix may have been stripped
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

// messages are the notices shown after a redirect, by name.
var messages = map[string]string{
	"renamed":     "Key renamed.",
	"revoked":     "Key revoked. Requests with it are now rejected.",
	"saved":       "Changes saved.",
	"on":          "Webhook turned on. Pending events are sent now.",
	"off":         "Webhook turned off. Pending events wait. Events published from now on are skipped.",
	"released":    "Webhook released. Pending events are sent once it is on.",
	"deleted":     "Webhook deleted.",
	"redelivered": "Queued to be sent again.",
	"waits":       "Queued until you turn the webhook back on.",
	"held":        "Queued until the webhook is released.",
}
