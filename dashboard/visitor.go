package dashboard

import (
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/storageapi/storageapi/auth"
)

// errMayNot is returned if the user has no permission for a request.
var errMayNot = errors.New("the user may not do this")

// A mayView holds a user's permissions. Templates show no buttons for forbidden actions.
type mayView struct {
	ReadKeys, CreateKey, UpdateKey, RotateKey, DeleteKey      bool
	ReadWebhooks, CreateWebhook, UpdateWebhook, DeleteWebhook bool
	ReadEvents, ReadAudit                                     bool
}

// viewMay returns the permissions of a request's user.
func (p *pages) viewMay(r *http.Request) mayView {
	may := func(action auth.Action) bool { return p.may == nil || p.may(r, action) }
	return mayView{
		ReadKeys: may(auth.ReadKeys), CreateKey: may(auth.CreateKey), UpdateKey: may(auth.UpdateKey),
		RotateKey: may(auth.RotateKey), DeleteKey: may(auth.DeleteKey),
		ReadWebhooks: may(auth.ReadWebhooks), CreateWebhook: may(auth.CreateWebhook),
		UpdateWebhook: may(auth.UpdateWebhook), DeleteWebhook: may(auth.DeleteWebhook),
		ReadEvents: may(auth.ReadEvents), ReadAudit: may(auth.ReadAudit),
	}
}

// permit returns errMayNot unless the user who made the request may perform action.
func (p *pages) permit(r *http.Request, action auth.Action) error {
	if action == anyone || p.may == nil || p.may(r, action) {
		return nil
	}
	return errMayNot
}

// refuseAccount answers a request without an account. It redirects requests for pages to
// Config.SignIn, if that is set. Otherwise it answers with 403, without the layout.
func (p *pages) refuseAccount(w http.ResponseWriter, r *http.Request) {
	if p.signIn != nil && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		to := *p.signIn
		query := to.Query()
		query.Set("next", requestedPage(r))
		to.RawQuery = query.Encode()
		w.Header().Set("Location", to.String())
		w.WriteHeader(http.StatusSeeOther)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusForbidden)
	_, _ = w.Write([]byte("403: sign in to see these pages.\n"))
}

// requestedPage returns the requested path and query, including any prefix that was stripped from
// the request. It removes possible secrets, and never returns an address that a browser would
// resolve to another host.
func requestedPage(r *http.Request) string {
	uri := r.URL.RequestURI()
	if u, err := url.ParseRequestURI(r.RequestURI); err == nil && strings.HasSuffix(u.RequestURI(), uri) {
		uri = u.RequestURI()
	}
	if u, err := url.ParseRequestURI(uri); err == nil {
		if at := tokens.FindStringIndex(u.Path); at != nil {
			u.Path, u.RawPath = u.Path[:strings.LastIndexByte(u.Path[:at[0]+1], '/')+1], ""
		}
		query := u.Query()
		maps.DeleteFunc(query, func(name string, values []string) bool {
			return maybeSecret(name) || slices.ContainsFunc(values, maybeSecret)
		})
		if len(query) < len(u.Query()) {
			u.RawQuery = query.Encode()
		}
		uri = u.RequestURI()
	}
	return "/" + strings.TrimLeft(uri, `/\`)
}

// isPath reports whether s is a path on this origin, with or without a query.
func isPath(s string) bool {
	u, err := url.Parse(s)
	return err == nil && strings.HasPrefix(s, "/") && !strings.HasPrefix(s, "//") && !strings.Contains(s, `\`) && u.Host == "" && u.Scheme == ""
}

// isAddress reports whether s is a path on this origin or a web address.
func isAddress(s string) bool {
	u, err := url.Parse(s)
	return isPath(s) || err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && u.User == nil
}
