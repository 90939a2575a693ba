// Package testhook gives tests of other packages access that the public API must not offer. Only
// tests may use it.
package testhook

import (
	"context"
	"net"
	"net/netip"
)

// Dial connects to a host and port, as [net.Dialer.DialContext] does.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// DialThrough makes a *webhooks.WebhookService connect to its receivers through dial, bypassing the
// guard, since receivers in a testing/synctest bubble must be in memory. If plain is set, the
// service uses HTTP without TLS. Call it before the service is used. Package webhooks sets it.
var DialThrough func(service any, dial Dial, plain bool)

// LookUpThrough makes a *webhooks.WebhookService resolve its receivers' names through resolve
// before it calls the function given to DialThrough. Call it after DialThrough, and before the
// service is used. Package webhooks sets it.
var LookUpThrough func(service any, resolve func(ctx context.Context, name string) ([]netip.Addr, error))

// Seed makes the jitter and the IDs of a *webhooks.WebhookService deterministic. Call it before the
// service is used. Package webhooks sets it.
var Seed func(service any, seed uint64)

// WriteUses makes an *apikeys.KeyService write the pending last uses, as it does once a minute, and
// returns when they are written. Package apikeys sets it.
var WriteUses func(service any)
