package dashboard

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/arrival"
)

// A call is a request for a page.
type call struct {
	*http.Request
	account string
	root    string // relative path from the requested URL to the mount point, such as "../"
}

type accountKey struct{}

func withAccount(ctx context.Context, account string) context.Context {
	return context.WithValue(ctx, accountKey{}, account)
}

// serve returns the handler of a route. It calls handle only if the user may perform the action.
func (p *pages) serve(action auth.Action, handle func(*call) (response, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &call{Request: r, root: p.root(r)}
		c.account, _ = r.Context().Value(accountKey{}).(string)
		if err := arrival.Limit(w, r, arrival.Timeout); err != nil {
			p.unbounded.Do(func() {
				p.log.WarnContext(r.Context(), "dashboard: no time limit on request bodies, since the ResponseWriter has no read deadline; set http.Server.ReadTimeout", "error", err)
			})
		}
		var a response
		err := c.check()
		if err == nil && len(c.PostForm) > 0 { // the body has been read
			arrival.Lift(w, r)
		}
		if err == nil {
			err = p.recheck(c)
		}
		if err == nil {
			err = p.permit(r, action)
		}
		if err == nil {
			a, err = handle(c)
		}
		if errors.Is(err, errNoAccount) {
			p.refuseAccount(w, r)
			return
		}
		if err != nil {
			a = p.failure(c, err)
		}
		p.write(w, c, a)
	})
}

// recheck determines the account again after a form has arrived, because the user may have signed
// out meanwhile. It rejects a form that belongs to another account's page.
func (p *pages) recheck(c *call) error {
	if c.Method == http.MethodGet || c.Method == http.MethodHead {
		return nil
	}
	now, err := p.accountOf(c.Request)
	if err != nil {
		return err
	}
	before := c.account
	c.account = now
	if bound, given := c.PostForm["account"]; now != before || given && !slices.Equal(bound, []string{boundTo(now)}) {
		return errOtherAccount
	}
	return nil
}

// boundTo returns the value of the form field that binds a form to an account. It is not secret.
func boundTo(account string) string { return version("account", account) }

// root returns the relative path from the requested URL to the mount point.
func (p *pages) root(r *http.Request) string {
	depth := strings.Count(r.URL.EscapedPath(), "/") - strings.Count(p.path, "/")
	if depth <= 0 {
		return "./"
	}
	return strings.Repeat("../", depth)
}

// check parses the form and rejects IDs that cannot exist in a store.
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

// isID reports whether s can be the ID of a stored object.
func isID(s string) bool { return len(s) <= 128 && isText(s) }

// isText reports whether stores accept s as a text.
func isText(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

// after returns the ID after which the requested page of a list begins.
func (c *call) after() string {
	if after := c.URL.Query().Get("after"); isID(after) {
		return after
	}
	return ""
}

// notice returns the message about the action that led to this page, or "".
func (c *call) notice() string {
	if c.Request.Method != http.MethodGet {
		return ""
	}
	return messages[c.URL.Query().Get("done")]
}
