// Package testhook lets tests of other packages do what the public API must not
// offer. Nothing else calls it.
package testhook

import (
	"context"
	"net"
)

// Dial connects to a host and port, as [net.Dialer.DialContext] does.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// DialThrough makes a *webhooks.WebhookService reach its receivers through dial, past
// the guard: in a bubble of testing/synctest they must be in memory. With plain it
// speaks HTTP without TLS to them. It is called before the service is used. Package
// webhooks sets it.
var DialThrough func(service any, dial Dial, plain bool)
