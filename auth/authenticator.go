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
	// RateLimit limits the requests of each key, whichever of its values they carry, and
	// those of all keys of an account together. Default: none.
	RateLimit RateLimit

	// Scopes are the scopes that [Authenticator.Require] knows. Default: those of
	// docs/spec.md, section 5.
	Scopes *scopes.Vocabulary

	// Observe is told what becomes of each request: see [observe.Observer.Authenticated].
	// storageapi.Config.Observe sets it. Default: nothing is told.
	Observe observe.Observer

	// LogRefusals logs how many requests were answered 401, and why: once a minute one line for each
	// source that had any, at level Warn, with the id of the last key that is known. 256 sources
	// have lines of their own; what comes from others in the same minute shares one. Set it where
	// nothing collects Observe. storageapi.Config.LogRefusals sets it. Default: not logged.
	LogRefusals bool

	// ClientAddress returns the source of a request for LogRefusals: see
	// storageapi.Config.ClientAddress, which sets it. Default: the host of RemoteAddr.
	ClientAddress func(*http.Request) string

	// Logger logs failures to verify keys, such as an unavailable store. Default:
	// slog.Default().
	Logger *slog.Logger

	// Now is the clock that RateLimit goes by. Default: time.Now.
	Now func() time.Time
}

// An Authenticator guards handlers. It is safe for concurrent use.
type Authenticator struct {
	verifier Verifier
	limiters limiters
	scopes   *scopes.Vocabulary
	observe  func(context.Context, observe.Authentication) // nil: none
	refusals *refusalLog                                   // nil: none
	watched  bool                                          // there is one of these
	log      *slog.Logger
}

// New returns an Authenticator that verifies keys with verifier. It returns an error if
// verifier is nil, or if a field of config is invalid, which the error names.
func New(verifier Verifier, config Config) (*Authenticator, error) {
	if verifier == nil {
		return nil, errors.New("auth: nil Verifier")
	}
	limit, err := config.RateLimit.withDefaults()
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
		verifier: verifier, limiters: newLimiters(limit, config.Now), scopes: config.Scopes,
		observe: config.Observe.Authenticated, log: config.Logger,
	}
	if config.LogRefusals {
		a.refusals = &refusalLog{log: config.Logger, address: config.ClientAddress}
	}
	a.watched = a.observe != nil || a.refusals != nil
	return a, nil
}

// Authenticate returns the principal of the key in a request's Api-Key header. The
// request is not counted by the [RateLimit]. A missing or repeated header and a key that
// is not valid are errors that wrap [ErrUnauthorized]; any other error means that the
// key could not be verified.
func (a *Authenticator) Authenticate(r *http.Request) (Principal, error) {
	v := a.verdict(r)
	c, err := a.authenticate(r, v)
	a.tell(r, v)
	return c.verified, err
}

func (a *Authenticator) authenticate(r *http.Request, v *verdict) (caller, error) {
	values := r.Header[HeaderName]
	if len(values) != 1 {
		v.set(observe.Authentication{Outcome: observe.Missing})
		return caller{}, ErrUnauthorized
	}
	ctx, cancel := lasting.Context(r.Context())
	defer cancel()
	var begun time.Time
	if v != nil {
		begun = time.Now()
	}
	p, err := a.verifier.Verify(ctx, values[0])
	if v != nil {
		is := outcomeOf(ctx, p, err)
		is.Duration = time.Since(begun)
		v.set(is)
	}
	return caller{verified: p, verifier: a.verifier, token: value(values[0]), verdict: v}, err
}

// Require returns a handler that lets a request through to next if it carries a
// valid key with the scope. [PrincipalFrom] then returns the caller. Otherwise it
// answers the request itself: 401 UNAUTHORIZED without a valid key, 429
// RATE_LIMIT_EXCEEDED if the key has made too many requests, 403 FORBIDDEN without the
// scope, 500 INTERNAL_ERROR if the key could not be verified.
//
// With a [RateLimit] every response to a valid key says what the key has left, or its
// account if that has less: X-RateLimit-Limit (requests in a burst),
// X-RateLimit-Remaining (requests that can be made now) and X-RateLimit-Reset (seconds
// until the burst is full again). A 429 also has Retry-After (seconds until the next
// request is admitted). A request that passes two guards counts twice.
//
// Require panics if scope is not one of [Config.Scopes] or next is nil, so that no route is
// open, or closed, by mistake.
func (a *Authenticator) Require(scope scopes.Scope, next http.Handler) http.Handler {
	if !a.scopes.Has(scope) {
		panic(fmt.Sprintf("auth: Require: %q is not a scope; a host's own are declared in storageapi.Config.Scopes", scope))
	}
	if next == nil {
		panic("auth: Require: nil handler")
	}
	return a.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p, _ := PrincipalFrom(r.Context()); !p.Scopes.Has(scope) {
			NoteForbidden(r.Context())
			WriteForbidden(w, "This requires an API key with the scope "+scope.String()+".")
			return
		}
		next.ServeHTTP(w, r)
	}))
}

// Handler is [Authenticator.Require] without a scope: it lets every valid key through,
// and next decides what it may do. It panics if next is nil.
func (a *Authenticator) Handler(next http.Handler) http.Handler {
	if next == nil {
		panic("auth: Handler: nil handler")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := a.verdict(r)
		if v != nil {
			defer a.tell(r, v)
		}
		c, err := a.authenticate(r, v)
		switch {
		case err == nil:
			if !a.limiters.admit(w, c.verified) {
				v.become(observe.Limited)
				return
			}
			next.ServeHTTP(w, r.WithContext(&guarded{r.Context(), c}))
		case errors.Is(err, ErrUnauthorized):
			WriteUnauthorized(w)
		default:
			a.logFailure(r.Context(), err)
			WriteFailure(w, err)
		}
	})
}

func (a *Authenticator) logFailure(request context.Context, err error) {
	ctx, cancel := lasting.Context(request)
	defer cancel()
	if ctx.Err() != nil {
		return // the client has gone away: nothing failed
	}
	a.log.ErrorContext(ctx, "storageapi: API key not verified", "error", err)
}

// Close logs what [Config.LogRefusals] has counted since the last minute ended. The Authenticator
// can be used after it, and Close called again.
func (a *Authenticator) Close() {
	if a.refusals != nil {
		a.refusals.flush()
	}
}

// Forget forgets what this process has counted of an account's requests by the
// [RateLimit]: for an account that was erased, and may begin again. Of its keys a number of some 16
// bytes each may remain, which tells nothing of them.
func (a *Authenticator) Forget(account string) { a.limiters.accounts.forget(account) }
