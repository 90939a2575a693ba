// Package httpapi is the HTTP face of the services: it decodes requests, calls
// the services, and encodes what they return.
//
// # The way of a request
//
// Checks come in one order, and the first that fails answers: the key (401), its
// rate (429), the route (404, 405), the authority that the route declares (403), the media type
// (415), the size (413), syntax and values (400). What can be decided only then
// follows: the authority over the very target (403) and the state (404, 409, 412).
//
// [routes] lists what there is; errors.go is the one place where an error becomes
// a status.
package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/lasting"
	"github.com/storageapi/storageapi/webhooks"
)

// Config is what the API works with.
type Config struct {
	Keys     *apikeys.KeyService
	Webhooks *webhooks.WebhookService
	Auth     *auth.Authenticator

	// Authorize decides who may do what. Default: [auth.LeastPrivilege].
	Authorize auth.Authorize

	// Logger is told of failures, and of nothing else above debug level.
	// Default: slog.Default().
	Logger *slog.Logger
}

// An api answers the requests that carry a live key.
type api struct {
	keys      *apikeys.KeyService
	webhooks  *webhooks.WebhookService
	authorize auth.Authorize
	refusals  map[auth.Action]string // what a 403 says, where the policy is known
	log       *slog.Logger
	router    router
}

// New returns the handler of all routes, guarded by config.Auth. It answers every
// path, with 404 where there is nothing.
func New(config Config) (http.Handler, error) {
	if config.Keys == nil || config.Webhooks == nil || config.Auth == nil {
		return nil, errors.New("httpapi: Config: Keys, Webhooks and Auth are required")
	}
	a := &api{
		keys:      config.Keys,
		webhooks:  config.Webhooks,
		authorize: config.Authorize,
		log:       config.Logger,
	}
	if a.authorize == nil {
		a.authorize, a.refusals = auth.LeastPrivilege, leastPrivilegeRefusals
	}
	if a.log == nil {
		a.log = slog.Default()
	}
	var err error
	if a.router, err = newRouter(a.routes()); err != nil {
		return nil, err
	}
	return config.Auth.Handler(a), nil
}

// A call is a request on its way through a route.
type call struct {
	*http.Request
	ctx    context.Context // see [call.Context]
	writer http.ResponseWriter
	caller auth.Principal
	route  *route
	place
}

// Context returns the context of answering, in place of the request's own.
func (c *call) Context() context.Context { return c.ctx }

// ServeHTTP answers a request whose key was found good.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Caches do not know Api-Key for a credential, as they do Authorization, and
	// some answers hold secrets.
	w.Header().Set("Cache-Control", "no-store")

	ctx, cancel := lasting.Context(r.Context())
	defer cancel()
	c := &call{Request: r, ctx: ctx, writer: w}
	c.caller, _ = auth.PrincipalFrom(ctx)
	var err error
	if c.route, c.place, err = a.router.find(r); err != nil {
		a.fail(c, err)
		return
	}
	if err := a.permit(c, nil); err != nil {
		a.fail(c, err)
		return
	}
	answer, err := c.route.handle(c)
	if err != nil {
		a.fail(c, err)
		return
	}
	answer.write(w)
}

// permit asks whether the caller may do what the route is for: in general if
// target is nil, else to that target.
func (a *api) permit(c *call, target *auth.Target) error {
	return a.authorize(c.Context(), c.caller, auth.Access{Action: c.route.action, Target: target})
}
