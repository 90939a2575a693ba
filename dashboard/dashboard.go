package dashboard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/lasting"
	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/webhooks"
)

// Config configures the pages. API and Account are required.
type Config struct {
	// API has the keys and webhooks that the pages show and change.
	API *storageapi.Handler

	// Account returns the account of a request, by the host's login. An error, or an
	// account that is invalid (empty, more than 128 bytes, no UTF-8), is answered 403
	// and nothing is looked up. It is called on every request, concurrently, and once
	// more when a form has arrived, which may take up to 30 s.
	Account func(*http.Request) (account string, err error)

	// Path is where the pages are mounted, as the handler sees it. It begins and ends
	// with a slash. A prefix that a proxy or [http.StripPrefix] removes is not part of
	// it: links are relative. Default: "/settings/".
	Path string

	// Title is shown above each page. Default: "Settings".
	Title string

	// Home is where the title leads: the host's own pages. A path of this origin or a web
	// address. Default: the title is no link.
	Home string

	// SignIn is where a visitor without an account is sent who asks for a page, with the
	// path of that in the query's parameter "next": a path of this origin, outside Path, or a
	// web address. Before the host leads back to next, it must check that it is a path
	// (begins with one slash). Forms are answered 403. Default: pages are, too.
	SignIn string

	// SignOut is where the button "Sign out" sends a POST without fields: a path of this
	// origin, outside Path, as is all that its answer leads to. Refuse it from other origins
	// ([http.CrossOriginProtection]). Default: there is no button.
	SignOut string

	// May reports whether the user of a request may do that to keys or webhooks of the
	// account: to look is [auth.ReadKeys], [auth.ReadWebhooks], [auth.ReadEvents] for what was
	// sent to webhooks, and [auth.ReadAudit] for the history of keys and webhooks. What one may not has no
	// button, and asked for nevertheless it is answered 403, forms after they have arrived.
	// It is called with requests that have an account, several times for a page, and
	// concurrently. Default: users may do everything.
	May func(r *http.Request, action auth.Action) bool

	// Actor returns what the audit trail calls the person who sends a request: an id or an
	// address from the host's login, never what a form says. Of it 128 bytes are kept. It is
	// called with requests that have an account, concurrently. If it returns an empty string
	// the host is the actor. Default: the host.
	Actor func(*http.Request) string

	// Logger logs failures, and requests without an account at debug level. No secret
	// is logged. Default: [slog.Default].
	Logger *slog.Logger

	// Now is the clock for relative times such as "3 days ago". Default: [time.Now].
	Now func() time.Time
}

// pages answers requests for the dashboard.
type pages struct {
	keys      *apikeys.KeyService
	webhooks  *webhooks.WebhookService
	notices   *notices.Service
	account   func(*http.Request) (string, error)
	path      string
	title     string
	home      string
	signIn    *url.URL // nil: none
	signOut   string
	may       func(*http.Request, auth.Action) bool // nil: everything
	attribute func(*http.Request) context.Context
	log       *slog.Logger
	now       func() time.Time
	routes    http.Handler

	unbounded sync.Once // warns once that forms may take for ever
}

// New returns the handler of all pages. It is safe for concurrent use and starts no
// goroutines. An error names the field of config that is missing or invalid.
func New(config Config) (http.Handler, error) {
	switch {
	case config.API == nil:
		return nil, errors.New("dashboard: Config.API is required: what storageapi.NewHandler returns")
	case config.Account == nil:
		return nil, errors.New("dashboard: Config.Account is required: it returns the account of a request")
	}
	p := &pages{
		keys:     config.API.Keys,
		webhooks: config.API.Webhooks,
		notices:  config.API.Notices,
		account:  config.Account,
		path:     config.Path,
		title:    config.Title,
		home:     config.Home,
		signOut:  config.SignOut,
		may:      config.May,
		log:      config.Logger,
		now:      config.Now,
	}
	p.attribute = func(r *http.Request) context.Context {
		actor := notices.Actor{Kind: notices.ActorHost}
		if config.Actor != nil {
			if person := config.Actor(r); person != "" {
				actor = notices.Actor{Kind: notices.ActorPerson, ID: person}
			}
		}
		return config.API.Attribute(r, actor)
	}
	if p.path == "" {
		p.path = "/settings/"
	}
	if !validPath(p.path) {
		return nil, fmt.Errorf("dashboard: Config.Path must begin and end with a slash, and be one that a ServeMux takes as it is: %q", p.path)
	}
	if err := p.setAddresses(&config); err != nil {
		return nil, err
	}
	if p.title == "" {
		p.title = "Settings"
	}
	if p.log == nil {
		p.log = slog.Default()
	}
	if p.now == nil {
		p.now = time.Now
	}
	origins := http.NewCrossOriginProtection()
	origins.SetDenyHandler(http.HandlerFunc(p.refuseOrigin))
	p.routes = origins.Handler(p.mux())
	return p, nil
}

// setAddresses takes the addresses outside the pages.
func (p *pages) setAddresses(config *Config) error {
	inside := func(address string) bool { return strings.HasPrefix(address+"/", p.path) && p.path != "/" }
	switch {
	case config.Home != "" && !isAddress(config.Home):
		return fmt.Errorf("dashboard: Config.Home must be a path or an address of http or https: %q", config.Home)
	case config.SignIn != "" && (!isAddress(config.SignIn) || inside(config.SignIn)):
		return fmt.Errorf("dashboard: Config.SignIn must be a path outside Config.Path or an address of http or https: %q", config.SignIn)
	case config.SignOut != "" && (!isPath(config.SignOut) || inside(config.SignOut)):
		return fmt.Errorf("dashboard: Config.SignOut must be a path outside Config.Path: %q", config.SignOut)
	}
	if config.SignIn != "" {
		p.signIn, _ = url.Parse(config.SignIn) // an address, so it can be parsed
	}
	return nil
}

// validPath reports whether a path can be part of the patterns of a ServeMux.
func validPath(path string) bool {
	return strings.HasPrefix(path, "/") && strings.HasSuffix(path, "/") && !strings.Contains(path, "//") &&
		!strings.Contains(path, "/./") && !strings.Contains(path, "/../") &&
		!strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`{}%?#\"<>`, r) })
}

// policy is the Content-Security-Policy of all responses.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// maxBody is how many bytes a form may have.
const maxBody = 64 << 10

// ServeHTTP answers a request, if it has an account.
func (p *pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Security-Policy", policy)
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Referrer-Policy", "same-origin") // "no-referrer" would make the Origin of forms null
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")

	ctx, cancel := lasting.Context(r.Context())
	defer cancel()
	account, err := p.accountOf(r.WithContext(ctx))
	if err != nil {
		p.refuseAccount(w, r)
		return
	}
	r = r.WithContext(withAccount(ctx, account)) // a copy
	r = r.WithContext(p.attribute(r))
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	p.routes.ServeHTTP(w, r)
}

// accountOf returns the account of a request, by the host's login, or errNoAccount.
func (p *pages) accountOf(r *http.Request) (string, error) {
	account, err := p.account(r)
	if err != nil || account == "" || !isID(account) {
		p.log.DebugContext(r.Context(), "dashboard: refused a request without an account", "error", err)
		return "", errNoAccount
	}
	return account, nil
}
