// Package httpapi implements the HTTP API on top of the services. It decodes requests, calls the
// services, and encodes the results.
//
// # Request processing
//
// Checks run in this order, and the first failure determines the response: the key (401),
// its rate (429), the route (404, 405), the route's action (403), the media type (415), the
// size (413), syntax and values (400), authority over the specific target (403), and the
// state (404, 409, 412).
//
// The body must arrive within 30 s. In that time the key may change, so it is verified again,
// bypassing caches, after the body has been read (401, 403) and before a deletion. When a request
// changes the caller's own key or creates an object, the transaction of the change also checks that
// the caller's value is still the same.
//
// A handler binds the request ([call.bind]), calls the service, and encodes the result. It does not
// check authority itself. It passes the service a condition (If), which the service calls after
// validating the request and before storing the change.
//
// [routes] lists all routes; errors.go is the only place that maps errors to statuses.
package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"sync"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/arrival"
	"github.com/storageapi/storageapi/internal/lasting"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/webhooks"
)

// Config has the dependencies and settings of the API.
type Config struct {
	Keys     *apikeys.KeyService
	Webhooks *webhooks.WebhookService
	Alerts   *alerts.AlertService
	Auth     *auth.Authenticator

	// Audit is the audit log. Attribute returns a copy of a request's context that attributes
	// changes to the actor.
	Audit     *audit.Service
	Attribute func(*http.Request, audit.Actor) context.Context

	// Prefix is the result of [ParsePrefix].
	Prefix string

	// Authorize is the access policy. Default: [auth.LeastPrivilege].
	Authorize auth.Authorize

	// Logger receives failures, and one warning if request bodies have no time limit. All other
	// lines have debug level. Default: slog.Default().
	Logger *slog.Logger
}

// An api answers the requests that carry a valid key.
type api struct {
	keys      *apikeys.KeyService
	webhooks  *webhooks.WebhookService
	guard     *auth.Authenticator
	alerts    *alerts.AlertService
	authorize auth.Authorize
	refusals  map[auth.Action]string // 403 messages; nil if the host has a policy of its own

	eventScopes scopes.Set // read scopes of all event types

	entries   *audit.Service
	attribute func(*http.Request, audit.Actor) context.Context

	log       *slog.Logger
	router    router
	unbounded sync.Once // logs only once that request bodies have no time limit
	servers   sync.Map  // of *http.Server to context.Context, see shutdown
}

// New returns the handler of all routes, guarded by config.Auth. It answers unknown paths
// with 404.
func New(config Config) (http.Handler, error) {
	if config.Keys == nil || config.Webhooks == nil || config.Alerts == nil || config.Auth == nil || config.Audit == nil || config.Attribute == nil {
		return nil, errors.New("httpapi: Config: Keys, Webhooks, Alerts, Auth, Audit and Attribute are required")
	}
	a := &api{
		keys:      config.Keys,
		webhooks:  config.Webhooks,
		guard:     config.Auth,
		alerts:    config.Alerts,
		authorize: config.Authorize,
		entries:   config.Audit,
		attribute: config.Attribute,
		log:       config.Logger,
	}
	if a.authorize == nil {
		a.authorize, a.refusals = auth.LeastPrivilege, leastPrivilegeRefusals(readScopes(config.Webhooks))
	}
	a.eventScopes = a.webhooks.ReadScopes(a.webhooks.EventTypes())
	if a.log == nil {
		a.log = slog.Default()
	}
	var err error
	if a.router, err = newRouter(under(config.Prefix, a.routes())); err != nil {
		return nil, err
	}
	// Requests that do not wait for events outlive their key: they are short, and a key that
	// deletes itself must still get the response.
	others := config.Auth.Handler(a, auth.OutlivesKey(), auth.AnyResource(), auth.RoutePattern(a.router.pattern))
	waiting := config.Auth.Handler(a, auth.AnyResource(), auth.RoutePattern(a.router.pattern))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.shutdown(r)
		if mayWait(r) {
			waiting.ServeHTTP(w, r)
			return
		}
		others.ServeHTTP(w, r)
	}), nil
}

// A call is a request being processed.
type call struct {
	*http.Request
	ctx    context.Context // see [call.Context]
	writer http.ResponseWriter
	caller auth.Principal
	route  *route
	pathParams
	data  []byte     // the body, after receive
	query url.Values // the parameters, all known to the route

	seen map[audit.Target]error // see [api.seesTarget]
}

// Context returns the context in which to process the request. It hides the Context method of
// Request.
func (c *call) Context() context.Context { return c.ctx }

// ServeHTTP answers a request whose key the guard has verified.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Caches do not treat Api-Key as a credential, unlike Authorization, and some responses
	// contain secrets.
	w.Header().Set("Cache-Control", "no-store")

	ctx, cancel := lasting.Context(r.Context())
	defer cancel()
	caller, _ := auth.PrincipalFrom(ctx)
	ctx = a.attribute(r.WithContext(ctx), audit.Actor{Kind: audit.ActorKey, ID: caller.KeyID, Name: caller.Name, Hint: caller.Hint})
	c := &call{Request: r, ctx: ctx, writer: w, caller: caller}
	if err := arrival.Limit(w, r, arrival.Timeout); err != nil {
		a.unbounded.Do(func() {
			a.log.WarnContext(ctx, "storageapi: no time limit on request bodies: the ResponseWriter does not support read deadlines; set http.Server.ReadTimeout", "error", err)
		})
	}
	response, err := a.respond(c)
	if err != nil {
		a.fail(c, err)
		return
	}
	response.write(w)
}

// respond processes a request.
func (a *api) respond(c *call) (done response, err error) {
	if c.route, c.pathParams, err = a.router.find(c.Request); err != nil {
		return response{}, err
	}
	if err := a.permit(c, nil); err != nil {
		return response{}, err
	}
	if err := c.receive(); err != nil {
		return response{}, err
	}
	if c.route.body != noBody {
		if err := a.recheck(c); err != nil {
			return response{}, err
		}
	}
	if c.query, err = parseQuery(c.URL.RawQuery, c.route.query); err != nil {
		return response{}, err
	}
	done, err = c.route.handle(c)
	if errors.Is(err, auth.ErrCredentialChanged) { // the key changed after the check
		if err := a.recheck(c); err != nil {
			return response{}, err
		}
		done, err = c.route.handle(c)
	}
	return done, err
}

// recheck verifies the caller's key again. If the result differs, it also checks again whether the
// caller may perform the route's action.
func (a *api) recheck(c *call) error {
	now, err := auth.Recheck(c.Context())
	if err != nil {
		return err
	}
	before := c.caller
	c.caller = now
	if now.Replaced == before.Replaced && now.ExpiresAt.Equal(before.ExpiresAt) && now.Scopes == before.Scopes {
		return nil
	}
	return a.permit(c, nil)
}

// credential returns the key value of the request as a credential for a change. It is zero for an
// operator of the host, who has no key.
func (a *api) credential(c *call) auth.Credential {
	if c.caller.KeyID == "" {
		return auth.Credential{}
	}
	return a.keys.Credential(c.Context(), a.guard.Token(c.Request), c.caller)
}

// permitNow is like permit, but uses the current state of the caller's key. Call it just before a
// change of target.
func (a *api) permitNow(c *call, target *auth.Target) error {
	if c.route.body == noBody { // for other routes, respond has already rechecked the key
		if err := a.recheck(c); err != nil {
			return err
		}
	}
	return a.permit(c, target)
}

// permit checks whether the caller may perform the route's action on the target or, if target is
// nil, on any target at all.
func (a *api) permit(c *call, target *auth.Target) error {
	if c.route.action == readSelf || c.route.action == revokeSelf {
		return nil
	}
	return a.permitTo(c, c.route.action, target)
}

// permitTo is like permit, but for an action that may not be the route's.
func (a *api) permitTo(c *call, action auth.Action, target *auth.Target) error {
	if err := auth.WithinResources(c.caller, target); err != nil {
		return err
	}
	err := a.authorize(c.Context(), c.caller, auth.Access{Action: action, Target: target, EventScopes: a.eventScopes})
	switch {
	case err != nil:
		return err
	case target != nil && target.ID != c.caller.KeyID: // a key needs no scopes to manage itself
		auth.NoteScopes(c.Context(), target.Scopes)
	case target == nil && action.ReadOnly() && action != auth.ReadEvents:
		auth.NoteScopes(c.Context(), scopes.Of(scopes.AccountRead))
	}
	return nil
}
