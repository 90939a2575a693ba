package dashboard

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/webhooks"
)

// A call is a request for a page.
type call struct {
	*http.Request
	account string
	root    string // the way to where the pages are mounted: "../", relative to the URL
}

// An answer is a page, or the way to another one.
type answer struct {
	status   int    // default: 200
	page     string // the template
	data     any
	title    string
	tab      string // the part of the navigation that is current
	replace  string // what the browser is to reload instead, relative to the root; default: the page that the form was on
	refresh  bool   // whether the page goes on changing
	redirect string // where to go instead, relative to the root
}

// goTo returns an answer that sends the browser to another page, where the notice of
// that name is shown.
func goTo(page, notice string) answer {
	if notice != "" {
		page += "?done=" + notice
	}
	return answer{redirect: page}
}

type accountKey struct{}

func withAccount(ctx context.Context, account string) context.Context {
	return context.WithValue(ctx, accountKey{}, account)
}

// serve makes a handler of what answers a call.
func (p *pages) serve(handle func(*call) (answer, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &call{Request: r, root: p.root(r)}
		c.account, _ = r.Context().Value(accountKey{}).(string)
		var a answer
		err := c.check()
		if err == nil {
			a, err = handle(c)
		}
		if err != nil {
			a = p.failure(c, err)
		}
		p.write(w, c, a)
	})
}

// root returns the way from a request's URL to where the pages are mounted.
func (p *pages) root(r *http.Request) string {
	depth := strings.Count(r.URL.EscapedPath(), "/") - strings.Count(p.path, "/")
	if depth <= 0 {
		return "./"
	}
	return strings.Repeat("../", depth)
}

// check reads the form, and refuses what no store could know.
func (c *call) check() error {
	if err := c.ParseForm(); err != nil {
		return badForm{err}
	}
	for _, name := range [...]string{"id", "event", "recovery"} {
		if v := c.PathValue(name); v != "" && !isID(v) {
			return errNoPage
		}
	}
	return nil
}

// isID reports whether a store may be asked for it.
func isID(s string) bool {
	return len(s) <= 128 && utf8.ValidString(s) && !strings.Contains(s, "\x00")
}

// after returns where a list is to begin.
func (c *call) after() string {
	if after := c.URL.Query().Get("after"); isID(after) {
		return after
	}
	return ""
}

var errNoPage = errors.New("no such page")

// A badForm is a body that cannot be read.
type badForm struct{ error }

func (f badForm) Unwrap() error { return f.error }

// failure returns the page that tells of an error.
func (p *pages) failure(c *call, err error) answer {
	var (
		form     badForm
		tooLarge *http.MaxBytesError
	)
	switch {
	case errors.Is(err, errNoPage), errors.Is(err, apikeys.ErrNotFound), errors.Is(err, webhooks.ErrNotFound):
		return failed(http.StatusNotFound, "There is nothing here", "It may have been deleted, or the address is wrong.")
	case errors.As(err, &tooLarge):
		return failed(http.StatusRequestEntityTooLarge, "That was too much", "A form may have at most 64 KiB.")
	case errors.As(err, &form):
		return failed(http.StatusBadRequest, "The form did not arrive whole", "Go back and send it again.")
	}
	if c.Context().Err() == nil {
		p.log.ErrorContext(c.Context(), "dashboard: a page failed", "route", c.Pattern, "error", err)
	}
	return failed(http.StatusInternalServerError, "Something went wrong", "It was not your doing. Try again in a moment.")
}

// A failureView is what the page of an error shows.
type failureView struct{ Heading, Text string }

func failed(status int, heading, text string) answer {
	return answer{status: status, page: "failure", title: heading, data: failureView{heading, text}}
}

// refuseOrigin answers a request that another site made the browser send.
func (p *pages) refuseOrigin(w http.ResponseWriter, r *http.Request) {
	c := &call{Request: r, root: p.root(r)}
	p.write(w, c, failed(http.StatusForbidden, "Not from here", "Another site sent this request. Nothing was changed."))
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
		p.log.ErrorContext(c.Context(), "dashboard: a page was not rendered", "page", a.page, "error", err)
		http.Error(w, "Something went wrong.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(a.status)
	_, _ = w.Write(body.Bytes()) // the browser may be gone
}

// notices are what a page says after a redirect, by name.
var notices = map[string]string{
	"renamed":     "The key has its new name.",
	"revoked":     "The key was revoked. Requests with it are refused from now on.",
	"saved":       "The changes were saved.",
	"on":          "The webhook is on. What it was owed goes on.",
	"off":         "The webhook is off. What it is owed waits until it is on again.",
	"deleted":     "The webhook was deleted, and sends nothing more.",
	"redelivered": "The event is being sent again.",
}

// notice returns what the page is to say of what was done before it.
func (c *call) notice() string {
	if c.Request.Method != http.MethodGet {
		return ""
	}
	query, err := url.ParseQuery(c.URL.RawQuery)
	if err != nil {
		return ""
	}
	return notices[query.Get("done")]
}
