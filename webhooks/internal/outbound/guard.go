package outbound

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"

	"code.dny.dev/ssrf"
)

// azureWireServer is the address of the platform services on Azure's virtual machines. IANA's
// registries do not list it.
var azureWireServer = netip.MustParsePrefix("168.63.129.16/32")

// A name with only private addresses fails with errNoAddress, like an unknown name. Otherwise
// owners of webhooks could find out which names exist in the host's own network.
var (
	errBlocked   = Failure{KindBlocked, "the address is in a private or reserved network"}
	errNoAddress = Failure{KindDNS, "no such host name, or none of its addresses is public"}
)

// A Guard refuses to dial IANA's special-purpose addresses, except for the networks and host
// names given to NewGuard.
type Guard struct {
	addresses *ssrf.Guardian
	names     map[string]bool // allowed, as returned by plainHost
	lookups   *Lookups
}

// NewGuard returns a guard that allows the networks and the host names. IPv4 networks must not be
// given as IPv4-mapped IPv6 networks.
func NewGuard(networks []netip.Prefix, names []string) *Guard {
	var v4, v6 []netip.Prefix
	for _, prefix := range networks {
		if prefix.Addr().Is4() {
			v4 = append(v4, prefix)
		} else {
			v6 = append(v6, prefix)
		}
	}
	g := &Guard{names: make(map[string]bool), lookups: NewLookups(SystemResolver), addresses: ssrf.New(
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

// allowsName reports whether a host may be dialed at any address.
func (g *Guard) allowsName(host string) bool { return g.names[plainHost(host)] }

// Check returns an error if the guard refuses any address of the host, or if the host name does not
// resolve. It does not dial.
func (g *Guard) Check(ctx context.Context, by Caller, address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil || g.allowsName(host) {
		return err
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		if g.Refuses(addr) {
			return errBlocked
		}
		return nil
	}
	addrs, err := g.lookups.Addresses(ctx, by, host)
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound || err == nil && (len(addrs) == 0 || slices.ContainsFunc(addrs, func(a netip.Addr) bool { return g.Refuses(a.Unmap()) })) {
		return errNoAddress
	}
	return err
}

// Dial connects to a host and port. It checks each address of a name just before it dials the
// address, when the address can no longer change.
func (g *Guard) Dial(ctx context.Context, by Caller, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	var dialer net.Dialer
	if !g.allowsName(host) {
		dialer.Control = g.addresses.Safe
	}
	var conn net.Conn
	if _, notAddress := netip.ParseAddr(host); notAddress == nil {
		conn, err = dialer.DialContext(ctx, "tcp", address)
	} else {
		var addrs []netip.Addr
		if addrs, err = g.lookups.Addresses(ctx, by, host); err == nil && len(addrs) == 0 {
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
