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

// errMayNot says that the user of a request may not do what it is for.
var errMayNot = errors.New("the user may not do this")

// A mayView is what a user may do, for templates: what one may not has no button.
type mayView struct {
	ReadKeys, CreateKey, UpdateKey, RotateKey, DeleteKey      bool
	ReadWebhooks, CreateWebhook, UpdateWebhook, DeleteWebhook bool
	ReadAudit                                                 bool
}

// viewMay asks what the user of a request may do.
func (p *pages) viewMay(r *http.Request) mayView {
	may := func(action auth.Action) bool { return p.may == nil || p.may(r, action) }
	return mayView{
		ReadKeys: may(auth.ReadKeys), CreateKey: may(auth.CreateKey), UpdateKey: may(auth.UpdateKey),
		RotateKey: may(auth.RotateKey), DeleteKey: may(auth.DeleteKey),
		ReadWebhooks: may(auth.ReadWebhooks), CreateWebhook: may(auth.CreateWebhook),
		UpdateWebhook: may(auth.UpdateWebhook), DeleteWebhook: may(auth.DeleteWebhook),
		ReadAudit: may(auth.ReadAudit),
	}
}

// permit returns errMayNot unless the user of a request may do what its route is for.
func (p *pages) permit(r *http.Request, action auth.Action) error {
	if action == anyone || p.may == nil || p.may(r, action) {
		return nil
	}
	return errMayNot
}

// refuseAccount answers a request without an account, without the layout: a page that is
// asked for is to be asked for again after signing in.
func (p *pages) refuseAccount(w http.ResponseWriter, r *http.Request) {
	if p.signIn != nil && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		to := *p.signIn
		query := to.Query()
		query.Set("next", asked(r))
		to.RawQuery = query.Encode()
		w.Header().Set("Location", to.String())
		w.WriteHeader(http.StatusSeeOther)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusForbidden)
	_, _ = w.Write([]byte("403: sign in to see these pages.\n"))
}

// asked returns the path and the query that the browser asked for, also where a prefix was
// stripped; never what a browser takes for another host, nor what could be a secret.
func asked(r *http.Request) string {
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

// isPath reports whether s is a path of this origin, with or without a query.
func isPath(s string) bool {
	u, err := url.Parse(s)
	return err == nil && strings.HasPrefix(s, "/") && !strings.HasPrefix(s, "//") && !strings.Contains(s, `\`) && u.Host == "" && u.Scheme == ""
}

// isAddress reports whether s is a path of this origin or a web address.
func isAddress(s string) bool {
	u, err := url.Parse(s)
	return isPath(s) || err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && u.User == nil
}
