package auth

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/storageapi/storageapi/internal/lasting"
	"github.com/storageapi/storageapi/scopes"
)

// A Principal is the caller of a request: an API key and the account it belongs to. It
// holds no secret.
type Principal struct {
	Account   string     // the account the key belongs to
	KeyID     string     // the key's id, "key_…"
	Scopes    scopes.Set // what the key may do; others that it holds are unknown in it
	ExpiresAt time.Time  // when the value that was sent expires; zero: never
	Replaced  bool       // that value was replaced by a rotation, and is in its grace period

	// Name is what the key is called, and Hint the hint of the value that was sent, for the audit trail
	// and logs; empty if the Verifier does not say.
	Name, Hint string
}

// CanManage reports whether the principal holds all scopes of a key and expires no earlier:
// what [LeastPrivilege] demands of who manages a key.
func (p Principal) CanManage(key Target) bool {
	outlives := p.ExpiresAt.IsZero() || !key.ExpiresAt.IsZero() && !key.ExpiresAt.After(p.ExpiresAt)
	return outlives && p.Scopes.Covers(key.Scopes)
}

// ErrUnauthorized is returned for a key that is malformed, unknown, deleted or expired,
// without telling which. Use [errors.Is].
var ErrUnauthorized = errors.New("missing, invalid or expired API key")

// A Verifier turns the value of an Api-Key header into a Principal.
//
// Verify returns an error that wraps [ErrUnauthorized] if the value is not that of a
// valid key, a [*Refusal] if it can say why, and any other error if the value could not be
// verified. Errors never contain the value. Verify must be safe for concurrent use.
type Verifier interface {
	Verify(ctx context.Context, token string) (Principal, error)
}

// A Rechecker is a [Verifier] whose Verify may answer from a cache. [Recheck] calls its
// Recheck method instead, which does not; it calls Verify of a Verifier without that
// method.
//
// Recheck is Verify for a value that Verify found to be that of p. It returns the
// principal as it is now: Replaced and ExpiresAt may differ.
type Rechecker interface {
	Recheck(ctx context.Context, p Principal, token string) (Principal, error)
}

// Recheck verifies the key of a guarded request once more and returns its principal;
// ctx is the request's. A handler calls it after it has waited for the client, above all
// for the body, and before it acts: a client that holds its request open must not be
// able to use a key that was deleted in the meantime. The result holds for the moment of
// the call only.
//
// Recheck returns an error that wraps [ErrUnauthorized] if the key is no longer valid or
// the request is not guarded, and any other error if the key could not be verified. A
// [RateLimit] does not count it.
func Recheck(ctx context.Context) (Principal, error) {
	c, _ := ctx.Value(callerKey{}).(*caller)
	if c == nil || c.verifier == nil {
		return Principal{}, ErrUnauthorized
	}
	ctx, cancel := lasting.Context(ctx)
	defer cancel()
	var p Principal
	var err error
	if again, ok := c.verifier.(Rechecker); ok {
		p, err = again.Recheck(ctx, c.verified, string(c.token))
	} else {
		p, err = c.verifier.Verify(ctx, string(c.token))
	}
	if err == nil && (p.Account != c.verified.Account || p.KeyID != c.verified.KeyID) {
		err = ErrUnauthorized // it is another key now
	}
	if err != nil {
		c.verdict.again(outcomeOf(ctx, Principal{}, err))
		return Principal{}, err
	}
	return p, nil
}

type callerKey struct{}

// A caller is what the context of a guarded request carries.
type caller struct {
	verified Principal
	verifier Verifier // nil: it was not verified
	token    value
	verdict  *verdict   // nil: nobody looks
	other    *Principal // returned instead, see WithPrincipal
}

// principal returns the principal that the request has.
func (c *caller) principal() Principal {
	if c.other != nil {
		return *c.other
	}
	return c.verified
}

// A guarded is the context of a request that has passed the guard.
type guarded struct {
	context.Context
	caller caller
}

// Format prints nothing of the caller: fmt does not call the Format of an unexported field.
func (g *guarded) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("auth: guarded context")) }

func (g *guarded) Value(key any) any {
	if _, ok := key.(callerKey); ok {
		return &g.caller
	}
	return g.Context.Value(key)
}

// A value is the value of a key. It prints as "[redacted]".
type value string

func (value) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[redacted]")) }

// WithPrincipal returns a context that carries p, for hosts that test their handlers. It
// does not change what [Recheck] verifies.
func WithPrincipal(ctx context.Context, p Principal) context.Context {
	var changed caller
	if c, _ := ctx.Value(callerKey{}).(*caller); c != nil {
		changed = *c
	}
	changed.other = &p
	return &guarded{ctx, changed}
}

// PrincipalFrom returns the principal of the request that ctx belongs to; ok
// is false outside a guarded handler.
func PrincipalFrom(ctx context.Context) (p Principal, ok bool) {
	c, _ := ctx.Value(callerKey{}).(*caller)
	if c == nil {
		return Principal{}, false
	}
	return c.principal(), true
}
