package outbound

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"code.dny.dev/ssrf"
)

// azureWireServer is a public address that is special on Azure's machines only;
// IANA's registries do not list it.
var azureWireServer = netip.MustParsePrefix("168.63.129.16/32")

// What the guard refuses, and what cannot be dialed for want of an address. A name that
// leads to a private address and one that leads nowhere look the same: otherwise owners
// could find out which names the host's own network has.
var (
	errBlocked   = Failure{KindBlocked, "the address is in a private or reserved network"}
	errNoAddress = Failure{KindDNS, "the host name has no public address"}
)

// A Guard decides which addresses may be dialed: none of IANA's special-purpose ranges,
// unless the host opened the address or the name that was asked for.
type Guard struct {
	addresses *ssrf.Guardian
	names     map[string]bool // open, in the form of plainHost
	lookups   lookups
}

// NewGuard returns a guard that opens networks, those of IPv4 as such, and host names.
func NewGuard(networks []netip.Prefix, names []string) *Guard {
	var v4, v6 []netip.Prefix
	for _, prefix := range networks {
		if prefix.Addr().Is4() {
			v4 = append(v4, prefix)
		} else {
			v6 = append(v6, prefix)
		}
	}
	g := &Guard{names: make(map[string]bool), addresses: ssrf.New(
		ssrf.WithAnyPort(),
		ssrf.WithAllowedV4Prefixes(v4...),
		ssrf.WithAllowedV6Prefixes(v6...),
		ssrf.WithDeniedV4Prefixes(azureWireServer),
	)}
	for _, name := range names {
		g.names[plainHost(name)] = true
	}
	return g
}

// Refuses reports whether dialing the address is refused.
func (g *Guard) Refuses(addr netip.Addr) bool { return g.addresses.SafeAddr(addr) != nil }

// opens reports whether a host may be dialed wherever it is.
func (g *Guard) opens(host string) bool { return g.names[plainHost(host)] }

// dial connects to a host and port, on the caller's account. What a name resolves
// to is checked when it cannot change any more: address by address, as each is dialed.
func (g *Guard) dial(ctx context.Context, by caller, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	var dialer net.Dialer
	if !g.opens(host) {
		dialer.Control = g.addresses.Safe
	}
	var conn net.Conn
	if _, notAddress := netip.ParseAddr(host); notAddress == nil {
		conn, err = dialer.DialContext(ctx, "tcp", address)
	} else {
		var addrs []netip.Addr
		if addrs, err = g.lookups.of(ctx, by, host); err == nil && len(addrs) == 0 {
			err = errNoAddress
		}
		if err == nil {
			conn, err = dialAny(ctx, &dialer, addrs, port)
		}
	}
	var dns *net.DNSError
	switch {
	case err == nil:
		return conn, nil
	case errors.Is(err, ssrf.ErrProhibitedIP), errors.Is(err, ssrf.ErrProhibitedNetwork):
		if _, err := netip.ParseAddr(host); err == nil {
			return nil, errBlocked
		}
		return nil, errNoAddress
	case errors.As(err, &dns) && dns.IsNotFound:
		return nil, errNoAddress
	}
	return nil, err
}
