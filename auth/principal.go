package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/storageapi/storageapi/internal/lasting"
	"github.com/storageapi/storageapi/scopes"
)

// A Principal is the caller of a request: an API key and the account it belongs to. It
// holds no secret.
type Principal struct {
	Account   string     // the account the key belongs to
	KeyID     string     // the key's ID, "key_…"
	Scopes    scopes.Set // the key's scopes; undeclared ones are in Scopes.Unknown
	ExpiresAt time.Time  // when the value in the request expires; zero means never
	Replaced  bool       // a rotation has replaced this value, and its grace period is running
	LimitedTo Resources  // the resources that the key is limited to; zero means no limit
	Networks  Networks   // the networks that the key is limited to
	RateLimit uint64     // the key's own limit in requests per minute; 0 means none

	// Name is the key's name, and Hint is the hint of the value in the request, for the audit log
	// and logs. Both are empty if the Verifier does not set them.
	Name, Hint string
}

// Allows reports whether p may access the resource: its key is not limited to resources, or the
// resource is one of them. For "", which stands for no resource in particular, it returns false if
// the key is limited.
func (p Principal) Allows(resource string) bool { return p.LimitedTo.Allows(resource) }

// Resources returns the resources that the key is limited to, in ascending order, or nil if it is
// not limited.
func (p Principal) Resources() []string { return p.LimitedTo.Names() }

// CanManage reports whether the key has at most the authority of p: it has only scopes that p
// holds, expires no later than p, and is limited at least as much as p in resources, networks and
// rate. [LeastPrivilege] requires this of a caller p that manages the key.
func (p Principal) CanManage(key Target) bool {
	outlives := p.ExpiresAt.IsZero() || !key.ExpiresAt.IsZero() && !key.ExpiresAt.After(p.ExpiresAt)
	slower := p.RateLimit == 0 || key.RateLimit != 0 && key.RateLimit <= p.RateLimit
	return outlives && slower && p.Networks.Covers(key.Networks) && p.Scopes.Covers(key.Scopes) && p.LimitedTo.Covers(key.Resources)
}

// ErrUnauthorized is returned for a malformed, unknown, deleted, expired or disabled key. It does
// not reveal which of these applies. Test for it with [errors.Is].
var ErrUnauthorized = errors.New("missing, invalid or expired API key")

// A Verifier turns the value of an Api-Key header into a Principal.
//
// Verify returns an error that wraps [ErrUnauthorized] if the value does not belong to a valid key
// (a [*Refusal] if the reason is known), and any other error if the value could not be verified.
// Errors never contain the value. Verify must be safe for concurrent use.
type Verifier interface {
	Verify(ctx context.Context, token string) (Principal, error)
}

// A Rechecker is a [Verifier] whose Verify method may answer from a cache. [Recheck] calls its
// Recheck method, which must bypass the cache. For other Verifiers, [Recheck] calls Verify.
//
// The Recheck method verifies a value that Verify has already accepted with principal p. It returns
// the current principal, whose Replaced and ExpiresAt may differ from p.
type Rechecker interface {
	Recheck(ctx context.Context, p Principal, token string) (Principal, error)
}

// Recheck verifies the key of a guarded request once more and returns its principal. ctx is the
// context of that request. A handler must call Recheck after waiting for the client, in particular
// for the body, and before acting: otherwise a client could hold a request open and act with a key
// that was deleted meanwhile. The result is valid only at the time of the call.
//
// Recheck returns an error that wraps [ErrUnauthorized] if the key is no longer valid or the
// request is not guarded, and any other error if the key could not be verified. The call does not
// count against a [RateLimit]. A key that is no longer valid counts as a refused request.
func Recheck(ctx context.Context) (Principal, error) {
	c, _ := ctx.Value(callerKey{}).(*caller)
	if c == nil || c.guard == nil {
		return Principal{}, ErrUnauthorized
	}
	if keyEnded(ctx) {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := lasting.Context(ctx)
	defer cancel()
	p, err := c.recheck(ctx)
	if err != nil {
		c.verdict.recheck(outcomeOf(ctx, Principal{}, err))
		c.guard.refusedValue(c.request, c.route, c.address, err)
		return Principal{}, err
	}
	return p, nil
}

type callerKey struct{}

// A caller holds the values that the context of a guarded request carries.
type caller struct {
	verified Principal
	guard    *Authenticator // nil if the principal was not verified
	token    value
	address  string // the client's address, see Recorder
	request  *http.Request
	route    *route
	verdict  *verdict   // nil if the request is not observed
	other    *Principal // replaces verified, see WithPrincipal
}

// recheck verifies the key again and bypasses any cache.
func (c *caller) recheck(ctx context.Context) (Principal, error) {
	again, ok := c.guard.verifier.(Rechecker)
	if !ok {
		return c.verify(ctx)
	}
	p, err := again.Recheck(ctx, c.verified, string(c.token))
	return c.unmoved(p, err)
}

// verify verifies the key again, possibly from a cache.
func (c *caller) verify(ctx context.Context) (Principal, error) {
	p, err := c.guard.verify(ctx, string(c.token), c.address)
	return c.unmoved(p, err)
}

// verifyOrRecheck verifies the key again. It accepts a cached success, but refuses a key only after
// bypassing the cache.
func (c *caller) verifyOrRecheck(ctx context.Context) (Principal, error) {
	p, err := c.verify(ctx)
	if errors.Is(err, ErrUnauthorized) {
		return c.recheck(ctx)
	}
	return p, err
}

// unmoved returns p and err, or ErrUnauthorized if the value now belongs to another key.
func (c *caller) unmoved(p Principal, err error) (Principal, error) {
	if err == nil && (p.Account != c.verified.Account || p.KeyID != c.verified.KeyID) {
		err = ErrUnauthorized
	}
	return p, err
}

func (c *caller) principal() Principal {
	if c.other != nil {
		return *c.other
	}
	return c.verified
}

// guarded is the context of a guarded request. See running.go for the fields after caller.
type guarded struct {
	context.Context
	caller caller

	lease atomic.Pointer[lease]
	shard *runningShard // nil if the request outlives its key

	// These fields are guarded by the shard's mutex.
	next, previous *guarded
	expiresAt      int64 // Unix milliseconds, which are smaller than a time.Time; 0 means never
	replaced       bool  // at expiresAt only the value ends, not the key
	seen           bool  // set by running.lasting
	left           bool
}

// Format hides the caller, because fmt would not call Format methods of its unexported fields.
func (g *guarded) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("auth: guarded context")) }

func (g *guarded) Value(key any) any {
	if _, ok := key.(callerKey); ok {
		return &g.caller
	}
	if known := g.lease.Load(); known != nil {
		return known.Value(key)
	}
	return g.Context.Value(key)
}

// A value is the secret value of an API key. It prints as "[redacted]".
type value string

func (value) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[redacted]")) }

// WithPrincipal returns a context in which [PrincipalFrom] returns p, for hosts that test their
// handlers. [Recheck] still verifies the key of the original request.
func WithPrincipal(ctx context.Context, p Principal) context.Context {
	var changed caller
	if c, _ := ctx.Value(callerKey{}).(*caller); c != nil {
		changed = *c
	}
	changed.other = &p
	return &guarded{Context: ctx, caller: changed}
}

// PrincipalFrom returns the principal of the request that ctx belongs to. Outside a guarded
// handler, ok is false.
func PrincipalFrom(ctx context.Context) (p Principal, ok bool) {
	c, _ := ctx.Value(callerKey{}).(*caller)
	if c == nil {
		return Principal{}, false
	}
	return c.principal(), true
}
