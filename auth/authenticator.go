package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/storageapi/storageapi/internal/lasting"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/scopes"
)

// HeaderName is the request header that carries the key (docs/spec.md, section 5).
const HeaderName = "Api-Key"

// Config configures an [Authenticator]. The zero Config works.
type Config struct {
	// RateLimit limits the requests of each key, counting all values of the key, and of all keys of
	// an account together. Default: none.
	RateLimit RateLimit

	// Scopes are the scopes that [Authenticator.Require] accepts. Default: the scopes of
	// docs/spec.md, section 5.
	Scopes *scopes.Vocabulary

	// Bearer also accepts keys as Authorization: Bearer <key>, for clients that cannot set other
	// headers. A request with both headers is answered 401; an Authorization header with another
	// scheme is ignored. storageapi.Config.Bearer sets it. Default: only the Api-Key header.
	Bearer bool

	// Realm is the realm in WWW-Authenticate: at most 64 visible ASCII characters and spaces, no
	// quotes and backslashes. storageapi.Config.Realm sets it. Default: "storageapi".
	Realm string

	// Observe receives the outcome of each request: see [observe.Observer.Authenticated].
	// storageapi.Config.Observe sets it. Default: none.
	Observe observe.Observer

	// LogRefusals logs how many requests were answered 401, and why. Each minute it logs one line
	// at level Warn for each source with refusals, with the last known key ID. Up to 256 sources
	// have their own line; further sources in that minute share one. Set it if no system collects
	// the calls to Observe. storageapi.Config.LogRefusals sets it. Default: no logging.
	LogRefusals bool

	// ClientAddress returns the client address of a request. A key limited to networks accepts only
	// addresses in them, and LogRefusals logs the address. storageapi.Config.ClientAddress sets and
	// describes this function. Default: the host in RemoteAddr.
	ClientAddress func(*http.Request) string

	// Logger logs failures to verify keys, such as an unavailable store. Default:
	// slog.Default().
	Logger *slog.Logger

	// Now is the clock for RateLimit and for the expiry of keys while requests run. Default:
	// time.Now.
	Now func() time.Time
}

// An Authenticator guards handlers. It is safe for concurrent use.
type Authenticator struct {
	verifier  Verifier
	recorder  Recorder // the Verifier, or nil
	challenge challenge
	limiters  limiters
	scopes    *scopes.Vocabulary
	observe   func(context.Context, observe.Authentication) // nil means none
	refusals  *refusalLog                                   // nil means none
	observed  bool                                          // whether observe or refusals is set
	log       *slog.Logger

	clientAddress func(*http.Request) string // nil means the host in RemoteAddr

	running *running
	watch   watch
}

// New returns an Authenticator that verifies keys with verifier. It returns an error if verifier is
// nil or a field of config is invalid; the error names the field.
func New(verifier Verifier, config Config) (*Authenticator, error) {
	if verifier == nil {
		return nil, errors.New("auth: nil Verifier")
	}
	limit, err := config.RateLimit.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("auth: Config: %w", err)
	}
	challenge, err := newChallenge(&config)
	if err != nil {
		return nil, fmt.Errorf("auth: Config: %w", err)
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	a := &Authenticator{
		verifier: verifier, challenge: challenge, limiters: newLimiters(limit, config.Now), scopes: config.Scopes,
		observe: config.Observe.Authenticated, log: config.Logger, running: newRunning(config.Now), clientAddress: config.ClientAddress,
	}
	a.recorder, _ = verifier.(Recorder)
	if config.LogRefusals {
		a.refusals = &refusalLog{log: config.Logger, address: config.ClientAddress}
	}
	a.observed = a.observe != nil || a.refusals != nil
	a.initWatch()
	return a, nil
}

// Authenticate returns the principal of the key in a request's header. The request does not count
// against the [RateLimit]. If the header is missing or repeated, or the key is invalid, the error
// wraps [ErrUnauthorized]. Any other error means that the key could not be verified.
func (a *Authenticator) Authenticate(r *http.Request) (Principal, error) {
	v := a.verdict(r)
	c, err := a.authenticate(r, v, &route{})
	a.report(r, v)
	return c.verified, err
}

func (a *Authenticator) authenticate(r *http.Request, v *verdict, of *route) (caller, error) {
	token, ok := a.challenge.token(r)
	if !ok {
		v.set(observe.Authentication{Outcome: observe.Missing})
		return caller{}, ErrUnauthorized
	}
	ctx, cancel := lasting.Context(r.Context())
	defer cancel()
	var begun time.Time
	if v != nil {
		begun = time.Now()
	}
	address := a.addressOf(r)
	p, err := a.verify(ctx, token, address)
	if v != nil {
		is := outcomeOf(ctx, p, err)
		is.Duration = time.Since(begun)
		v.set(is)
	}
	if err != nil {
		a.refusedValue(r, of, address, err)
	}
	return caller{verified: p, guard: a, token: value(token), address: address, verdict: v, request: r, route: of}, err
}

func (a *Authenticator) verify(ctx context.Context, token, address string) (Principal, error) {
	if a.recorder != nil {
		return a.recorder.VerifyFrom(ctx, token, address)
	}
	return a.verifier.Verify(ctx, token)
}

// Require returns a handler that passes a request to next if the request carries a valid key with
// the scope; in next, [PrincipalFrom] returns the caller. It answers other requests itself: 401
// UNAUTHORIZED without a valid key, 429 RATE_LIMIT_EXCEEDED if the key has made too many requests,
// 403 FORBIDDEN without the scope, 500 INTERNAL_ERROR if the key could not be verified. A key that
// is limited to resources also gets 403, unless the route has the option [Resource] or
// [AnyResource].
//
// With a [RateLimit], every response to a valid key reports the remaining quota of the key or of
// its account, whichever is smaller, in X-RateLimit-Limit (requests in a burst),
// X-RateLimit-Remaining (requests that can be made now) and X-RateLimit-Reset (seconds until the
// burst is full again). A 429 also has Retry-After (seconds until the next request is admitted). A
// request that passes two guards counts twice.
//
// The request's context ends when its key does: when the key is deleted or turned off, expires or
// is erased with its account, or when the grace period of a rotated value ends. [context.Cause]
// returns the reason, such as [ErrKeyDeleted]. So a handler that stops when its context ends also
// stops downloads and streams when their key is revoked. A route can opt out with [OutlivesKey].
//
// Require panics if scope is not in [Config.Scopes] or next is nil, because either mistake could
// leave a route open to everyone or closed to everyone.
func (a *Authenticator) Require(scope scopes.Scope, next http.Handler, options ...RouteOption) http.Handler {
	if !a.scopes.Has(scope) {
		panic(fmt.Sprintf("auth: Require: unknown scope %q; declare a host's own scopes in storageapi.Config.Scopes", scope))
	}
	if next == nil {
		panic("auth: Require: nil handler")
	}
	required := scopes.Of(scope)
	return a.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p, _ := PrincipalFrom(r.Context()); !p.Scopes.Has(scope) {
			NoteForbidden(r.Context(), scope.String())
			a.WriteForbidden(w, "This requires an API key with the scope "+scope.String()+".", required)
			return
		}
		NoteScopes(r.Context(), required)
		next.ServeHTTP(w, r)
	}), options...)
}

// A RouteOption changes how [Authenticator.Require] guards a route.
type RouteOption func(*route)

type route struct {
	outlivesKey bool
	anyResource bool
	resource    func(*http.Request) string // nil if the route names none
	pattern     func(*http.Request) string
}

// OutlivesKey lets the requests of a route continue after their key has ended. Use it for work that
// must not stop halfway; the handler can call [Recheck].
func OutlivesKey() RouteOption { return func(r *route) { r.outlivesKey = true } }

// Handler is like [Authenticator.Require], but requires no scope. Every valid key passes, except keys
// limited to resources that the options do not admit, and next decides what the key may do. Handler
// panics if next is nil.
func (a *Authenticator) Handler(next http.Handler, options ...RouteOption) http.Handler {
	if next == nil {
		panic("auth: Handler: nil handler")
	}
	var of route
	for _, option := range options {
		option(&of)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := a.verdict(r)
		if v != nil {
			defer a.report(r, v)
		}
		g, err := a.begin(r, v, &of)
		switch {
		case err == nil:
			defer a.running.leave(g)
			if p := &g.caller.verified; !a.limiters.admit(w, p) {
				v.setOutcome(observe.Limited)
				a.refused(r, &of, p.Account, p.KeyID, g.caller.address, observe.Limited)
				return
			}
			r = r.WithContext(g)
			g.caller.request = r
			if resource, ok := of.admits(&g.caller.verified, r); !ok {
				NoteForbidden(g, resource)
				a.WriteOutside(w, resource)
				return
			}
			next.ServeHTTP(w, r)
		case errors.Is(err, ErrUnauthorized):
			a.WriteUnauthorized(w)
		default:
			a.logFailure(r.Context(), err)
			WriteFailure(w, err)
		}
	})
}

// begin verifies the key of a request and returns the context for its handler. After the handler
// has returned, the caller must remove that context from running.
func (a *Authenticator) begin(r *http.Request, v *verdict, of *route) (*guarded, error) {
	for {
		changes := a.running.changes.Load()
		c, err := a.authenticate(r, v, of)
		if err != nil {
			return nil, err
		}
		g := &guarded{Context: r.Context(), caller: c}
		if of.outlivesKey {
			return g, nil
		}
		if a.running.enter(g, changes) {
			if !a.watch.started.Load() {
				a.startWatch()
			}
			return g, nil
		}
	}
}

func (a *Authenticator) logFailure(request context.Context, err error) {
	ctx, cancel := lasting.Context(request)
	defer cancel()
	if ctx.Err() != nil {
		return // the client disconnected, so nothing failed
	}
	a.log.ErrorContext(ctx, "storageapi: API key not verified", "error", err)
}

// Close logs the refusals of the current minute for [Config.LogRefusals] and stops watching for
// changes that other processes make to keys. The Authenticator remains usable, and Close may be
// called again.
func (a *Authenticator) Close() {
	a.watch.close()
	if a.refusals != nil {
		a.refusals.flush()
	}
}

// Forget discards this process's [RateLimit] count for an erased account, whose name may be used
// again. About 16 bytes may remain for each of its keys; they do not identify the key.
func (a *Authenticator) Forget(account string) { a.limiters.accounts.forget(account) }
