package dashboard

import (
	"context"
	"net/http"
	"strings"
	"unicode/utf8"
)

// A call is a request for a page.
type call struct {
	*http.Request
	account string
	root    string // the way to where the pages are mounted: "../", relative to the URL
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

// notice returns what the page is to say of what was done before it.
func (c *call) notice() string {
	if c.Request.Method != http.MethodGet {
		return ""
	}
	return notices[c.URL.Query().Get("done")]
}
