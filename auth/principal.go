package auth

import (
	"context"
	"errors"
	"time"

	"github.com/storageapi/storageapi/scopes"
)

// A Principal is who a request comes from: an API key and the account it
// belongs to. It holds no secret.
type Principal struct {
	Account   string     // the account the key belongs to
	KeyID     string     // the key's id, "key_…"
	Scopes    scopes.Set // what the key may do
	ExpiresAt time.Time  // when the value that was sent dies; zero: never
	Replaced  bool       // that value was replaced by a rotation, and lives on for its grace
}

// ErrUnauthorized says that a key is malformed, unknown, deleted or expired;
// which of them is not told. Use [errors.Is].
var ErrUnauthorized = errors.New("missing, invalid or expired API key")

// A Verifier turns the value of an Api-Key header into a Principal.
//
// Verify returns an error that wraps [ErrUnauthorized] if the value is not that
// of a live key, and any other error if it could not find out. Errors never
// hold the value. It must be safe for concurrent use.
type Verifier interface {
	Verify(ctx context.Context, token string) (Principal, error)
}

type principalKey struct{}

// WithPrincipal returns a context that carries p. [Authenticator.Require] calls
// it; hosts need it only to test their handlers.
func WithPrincipal(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// PrincipalFrom returns the principal of the request that ctx belongs to; ok
// is false outside a guarded handler.
func PrincipalFrom(ctx context.Context) (p Principal, ok bool) {
	p, ok = ctx.Value(principalKey{}).(Principal)
	return p, ok
}
