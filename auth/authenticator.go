package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/storageapi/storageapi/internal/lasting"
	"github.com/storageapi/storageapi/scopes"
)

// HeaderName is the request header that carries the key (SPEC section 5).
const HeaderName = "Api-Key"

// Config configures an [Authenticator]. The zero Config works.
type Config struct {
	// RateLimit is of each key's requests, by its id, whichever of its values they
	// carry, and of those of all keys of an account together. Default: none.
	RateLimit RateLimit

	// Logger is told what could not be found out about keys. Default:
	// slog.Default().
	Logger *slog.Logger

	// Now is the clock that RateLimit goes by. Default: time.Now.
	Now func() time.Time
}

// An Authenticator guards handlers. It is safe for concurrent use.
type Authenticator struct {
	verifier Verifier
	limiters limiters
	log      *slog.Logger
}

// New returns an Authenticator that asks verifier about keys. A verifier that is nil
// is an error, and so is a config that makes no sense, which names the field.
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
	return &Authenticator{verifier, newLimiters(limit, config.Now), config.Logger}, nil
}

// Authenticate returns the principal of a request, and counts nothing: that of the
// key in its one Api-Key header. A missing or repeated header, and a key that is not live, is
// an error that wraps [ErrUnauthorized]; any other error means that the store
// could not be asked.
func (a *Authenticator) Authenticate(r *http.Request) (Principal, error) {
	c, err := a.authenticate(r)
	return c.verified, err
}

func (a *Authenticator) authenticate(r *http.Request) (caller, error) {
	values := r.Header[HeaderName]
	if len(values) != 1 {
		return caller{}, ErrUnauthorized
	}
	ctx, cancel := lasting.Context(r.Context())
	defer cancel()
	p, err := a.verifier.Verify(ctx, values[0])
	return caller{verified: p, verifier: a.verifier, token: value(values[0])}, err
}

// Require returns a handler that lets a request through to next if it carries a
// live key with the scope; [PrincipalFrom] then tells next who is calling.
// Otherwise it answers, and next does not run: 401 UNAUTHORIZED without a live
// key, 429 RATE_LIMIT_EXCEEDED if the key has made too many requests, 403 FORBIDDEN
// without the scope, 500 INTERNAL_ERROR if the store fails.
//
// With a [RateLimit] every answer to a live key tells how it stands, or its account if
// that has less left: the headers
// X-RateLimit-Limit (how many requests at once at most), X-RateLimit-Remaining (how
// many now) and X-RateLimit-Reset (in how many seconds as many as at most); and where
// there was one too many, Retry-After (in how many seconds the next). A request that
// passes two guards counts twice.
//
// It panics if scope is none of the constants of package scopes or next is nil:
// a route must not be open by mistake.
func (a *Authenticator) Require(scope scopes.Scope, next http.Handler) http.Handler {
	if scope.String() == "" {
		panic(fmt.Sprintf("auth: Require: %d is not a scope", scope))
	}
	if next == nil {
		panic("auth: Require: nil handler")
	}
	return a.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p, _ := PrincipalFrom(r.Context()); !p.Scopes.Has(scope) {
			WriteForbidden(w, "This needs an API key with the scope "+scope.String()+".")
			return
		}
		next.ServeHTTP(w, r)
	}))
}

// Handler is [Authenticator.Require] without a scope: any live key will do, and
// next decides the rest. It panics if next is nil.
func (a *Authenticator) Handler(next http.Handler) http.Handler {
	if next == nil {
		panic("auth: Handler: nil handler")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := a.authenticate(r)
		switch {
		case err == nil:
			if !a.limiters.admit(w, c.verified) {
				return
			}
			next.ServeHTTP(w, r.WithContext(&guarded{r.Context(), c}))
		case errors.Is(err, ErrUnauthorized):
			WriteUnauthorized(w)
		default:
			a.logFailure(r.Context(), err)
			WriteInternal(w)
		}
	})
}

func (a *Authenticator) logFailure(request context.Context, err error) {
	ctx, cancel := lasting.Context(request)
	defer cancel()
	if ctx.Err() != nil {
		return // nobody waits any more; nothing failed
	}
	a.log.ErrorContext(ctx, "storageapi: API key not verified", "error", err)
}
