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
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/lasting"
	"github.com/storageapi/storageapi/webhooks"
)

// Config configures the pages. API and Account are required.
type Config struct {
	// API provides the keys and webhooks that the pages show and change.
	API *storageapi.Handler

	// Account returns the account of a request, according to the host's login. If it returns an
	// error or an invalid account (empty, more than 128 bytes, not UTF-8), the response is 403, and
	// nothing is read from the store. Account is called for every request, concurrently, and called
	// again after a form has arrived, which may take up to 30 s.
	Account func(*http.Request) (account string, err error)

	// Path is the path of the pages as the handler sees it. It begins and ends with a slash. Leave
	// out any prefix that a proxy or [http.StripPrefix] removes; all links are relative. Default:
	// "/settings/".
	Path string

	// Title is shown above each page. Default: "Settings".
	Title string

	// Home is the page to which the title links, such as the host's start page. It is a path on
	// this origin or a web address. Default: the title is not a link.
	Home string

	// SignIn is the host's login page. It is a path on this origin, outside Path, or a web address.
	// GET requests without an account are redirected there, with the requested path in the query
	// parameter "next". Before the host redirects back to next, it must check that next is a path
	// (begins with exactly one slash). Forms without an account are answered with 403. Default: all
	// requests without an account are answered with 403.
	SignIn string

	// SignOut is the target of the button "Sign out", which sends a POST without fields. It must be
	// a path on this origin, outside Path, and may redirect only to such paths. The host should
	// reject requests from other origins ([http.CrossOriginProtection]). Default: no button.
	SignOut string

	// APIURL is the address at which clients reach the API, including its prefix, such as
	// "https://api.example.com/v2". The page of a new key shows a command that uses it. Default:
	// the origin of the page, followed by the API's [storageapi.Config.Prefix].
	APIURL string

	// May reports whether the user of a request may perform an action on keys or webhooks of the
	// account. For users who may only view, return [auth.Action.ReadOnly]: it includes
	// [auth.ReadEvents], for the bodies of events, and [auth.ReadAudit], for the audit log. Pages
	// have no buttons for forbidden actions. A request for a forbidden action is answered with 403;
	// if it is a form, only once the form has arrived. May is called concurrently, several times
	// per page, and only with requests that have an account. Default: users may do everything.
	May func(r *http.Request, action auth.Action) bool

	// Actor returns the name that the audit log gives to the user of a request: an ID or an address
	// from the host's login, never the value of a form field. The first 128 bytes are stored. Actor
	// is called concurrently, and only with requests that have an account. If it returns "", the
	// actor is the host. Default: the host.
	Actor func(*http.Request) string

	// Logger receives failures, and at debug level also requests without an account. It receives no
	// secrets. Default: [slog.Default].
	Logger *slog.Logger

	// Now is the clock for relative times such as "3 days ago". Default: [time.Now].
	Now func() time.Time
}

// pages serves the dashboard.
type pages struct {
	keys      *apikeys.KeyService
	webhooks  *webhooks.WebhookService
	alerts    *alerts.AlertService
	unit      string // unit of balances; empty if the service has no balances
	apiURL    string // see Config.APIURL
	apiPrefix string
	entries   *audit.Service
	account   func(*http.Request) (string, error)
	path      string
	title     string
	home      string
	signIn    *url.URL // nil if there is no login page
	signOut   string
	may       func(*http.Request, auth.Action) bool // nil means that everything is allowed
	attribute func(*http.Request) context.Context
	log       *slog.Logger
	now       func() time.Time
	routes    http.Handler

	unbounded sync.Once // warns only once that forms have no time limit
}

// New returns a handler that serves all pages. It is safe for concurrent use and starts no
// goroutines. An error names the field of config that is missing or invalid.
func New(config Config) (http.Handler, error) {
	switch {
	case config.API == nil:
		return nil, errors.New("dashboard: Config.API is required: pass the result of storageapi.NewHandler")
	case config.Account == nil:
		return nil, errors.New("dashboard: Config.Account is required: it returns the account of a request")
	}
	p := &pages{
		keys:      config.API.Keys,
		webhooks:  config.API.Webhooks,
		alerts:    config.API.Alerts,
		apiURL:    strings.TrimSuffix(config.APIURL, "/"),
		apiPrefix: config.API.Prefix(),
		entries:   config.API.Audit,
		account:   config.Account,
		path:      config.Path,
		title:     config.Title,
		home:      config.Home,
		signOut:   config.SignOut,
		may:       config.May,
		log:       config.Logger,
		now:       config.Now,
	}
	if _, offered := p.webhooks.DeclaredEvent(alerts.TypeBalanceLow); offered {
		p.unit = p.alerts.Unit()
	}
	p.attribute = func(r *http.Request) context.Context {
		actor := audit.Actor{Kind: audit.ActorHost}
		if config.Actor != nil {
			if person := config.Actor(r); person != "" {
				actor = audit.Actor{Kind: audit.ActorPerson, ID: person}
			}
		}
		return config.API.Attribute(r, actor)
	}
	if p.path == "" {
		p.path = "/settings/"
	}
	if !validPath(p.path) {
		return nil, fmt.Errorf("dashboard: Config.Path must begin and end with a slash, be clean, and contain nothing that needs escaping: %q", p.path)
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

// setAddresses validates and sets the addresses that lead out of the dashboard.
func (p *pages) setAddresses(config *Config) error {
	inside := func(address string) bool { return strings.HasPrefix(address+"/", p.path) && p.path != "/" }
	switch {
	case config.Home != "" && !isAddress(config.Home):
		return fmt.Errorf("dashboard: Config.Home must be a path or an http or https URL: %q", config.Home)
	case config.SignIn != "" && (!isAddress(config.SignIn) || inside(config.SignIn)):
		return fmt.Errorf("dashboard: Config.SignIn must be a path outside Config.Path or an http or https URL: %q", config.SignIn)
	case config.APIURL != "" && (isPath(config.APIURL) || !isAddress(config.APIURL)):
		return fmt.Errorf("dashboard: Config.APIURL must be an http or https URL: %q", config.APIURL)
	case config.SignOut != "" && (!isPath(config.SignOut) || inside(config.SignOut)):
		return fmt.Errorf("dashboard: Config.SignOut must be a path outside Config.Path: %q", config.SignOut)
	}
	if config.SignIn != "" {
		p.signIn, _ = url.Parse(config.SignIn) // isAddress has already parsed it
	}
	return nil
}

// validPath reports whether ServeMux patterns can contain the path.
func validPath(path string) bool {
	return strings.HasPrefix(path, "/") && strings.HasSuffix(path, "/") && !strings.Contains(path, "//") &&
		!strings.Contains(path, "/./") && !strings.Contains(path, "/../") &&
		!strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`{}%?#\"<>`, r) })
}

// policy is the Content-Security-Policy of all responses.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// maxBody is the maximum size of a form in bytes.
const maxBody = 64 << 10

// ServeHTTP answers a request. It refuses requests without an account.
func (p *pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Security-Policy", policy)
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Referrer-Policy", "same-origin") // with "no-referrer", the Origin of forms would be null
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

// accountOf returns the account of a request, according to the host's login, or errNoAccount.
func (p *pages) accountOf(r *http.Request) (string, error) {
	account, err := p.account(r)
	if err != nil || account == "" || !isID(account) {
		p.log.DebugContext(r.Context(), "dashboard: refused a request without an account", "error", err)
		return "", errNoAccount
	}
	return account, nil
}
