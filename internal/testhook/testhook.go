// Package testhook gives simulations and package storageapitest, the kit for tests of hosts, access
// to a WebhookService that the public API must not offer. Package webhooks sets the functions.
package testhook

import (
	"context"
	"net"
	"net/netip"
)

// A Network replaces the network through which a WebhookService reaches its receivers.
type Network struct {
	// Dial connects to a host and port, as [net.Dialer.DialContext] does. It bypasses the guard,
	// because in a testing/synctest bubble receivers must be in memory. Default: the guard's
	// dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Resolve resolves names before Dial is called, within the limits on lookups. Default: Dial
	// resolves names.
	Resolve func(ctx context.Context, name string) ([]netip.Addr, error)

	// TLS requires TLS, with the roots of the service's Config. Default: plain HTTP.
	TLS bool
}

// SetNetwork gives a *webhooks.WebhookService a network. Call it before the service is used.
var SetNetwork func(service any, network Network)

// Seed makes the jitter and the IDs of a *webhooks.WebhookService deterministic. Call it before the
// service is used.
var Seed func(service any, seed uint64)
