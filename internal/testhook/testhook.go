// Package testhook gives tests of other packages access that the public API must not
// offer. Only tests call it.
package testhook

import (
	"context"
	"net"
	"net/netip"
)

// Dial connects to a host and port, as [net.Dialer.DialContext] does.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// DialThrough makes a *webhooks.WebhookService connect to its receivers through dial,
// without the guard: in a bubble of testing/synctest they must be in memory. If plain is
// set, it uses HTTP without TLS. Call it before the service is used. Package webhooks
// sets it.
var DialThrough func(service any, dial Dial, plain bool)

// LookUpThrough makes a *webhooks.WebhookService look up the names of its receivers through
// resolve before it calls the function that DialThrough was given. Call it after that, and
// before the service is used. Package webhooks sets it.
var LookUpThrough func(service any, resolve func(ctx context.Context, name string) ([]netip.Addr, error))

// Seed makes the jitter of a *webhooks.WebhookService, and the ids that it makes, those of
// a seed. Call it before the service is used. Package webhooks sets it.
var Seed func(service any, seed uint64)

// WriteUses makes an *apikeys.KeyService write the last uses that are pending, as it does
// once a minute, and waits for that. Package apikeys sets it.
var WriteUses func(service any)
