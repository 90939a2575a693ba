package auth

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/storageapi/storageapi/internal/lasting"
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

// A Rechecker is a [Verifier] that can verify a value again, as its key is at this
// moment: a Verifier whose Verify may answer from memory implements it, so that
// [Recheck] does not. Where a Verifier is none, Recheck calls Verify.
//
// Recheck is Verify for a value that Verify found to be that of p. It returns the
// principal as it is now: Replaced and ExpiresAt may differ.
type Rechecker interface {
	Recheck(ctx context.Context, p Principal, token string) (Principal, error)
}

// Recheck verifies the key of a guarded request once more, as it is now, and returns
// its principal; ctx is the request's. A handler calls it after it has waited for the
// client, above all for the body, and before it does what was asked for: a client that
// holds its request open must not be able to use a key that was deleted meanwhile.
// What is done after that is done by a key that was good at the time of the call: how
// soon after is the handler's business.
//
// It returns an error that wraps [ErrUnauthorized] if the key is not live any more, or
// the request is not guarded; and any other error if it could not find out. [WriteError]
// and its siblings answer both. It is not counted by a [RateLimit].
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
		err = ErrUnauthorized // another's: it is not who began
	}
	if err != nil {
		return Principal{}, err
	}
	return p, nil
}

type callerKey struct{}

// A caller is what the context of a request carries: who it comes from, and how that
// was found out.
type caller struct {
	verified Principal
	verifier Verifier // nil: it was not
	token    value
	other    *Principal // whom it is said to come from instead, see WithPrincipal
}

// principal returns whom the request comes from.
func (c *caller) principal() Principal {
	if c.other != nil {
		return *c.other
	}
	return c.verified
}

// A guarded context is that of a request whose caller is known.
type guarded struct {
	context.Context
	caller caller
}

// Format prints nothing of the caller: fmt would not ask an unexported field how to.
func (g *guarded) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("auth: guarded context")) }

func (g *guarded) Value(key any) any {
	if _, ok := key.(callerKey); ok {
		return &g.caller
	}
	return g.Context.Value(key)
}

// A value is that of a key. It prints as "[redacted]".
type value string

func (value) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[redacted]")) }

// WithPrincipal returns a context that carries p. [Authenticator.Require] calls
// it; hosts need it only to test their handlers. What [Recheck] verifies does not
// change by it.
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
