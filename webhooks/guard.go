package webhooks

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"

	"code.dny.dev/ssrf"
)

// azureWireServer is a public address that is special on Azure's machines only;
// IANA's registries do not list it.
var azureWireServer = netip.MustParsePrefix("168.63.129.16/32")

// What the guard refuses, and what cannot be dialled for want of an address. That
// a name leads to a private address is not told apart from its leading nowhere:
// accounts could find out so which names the host's own network has.
var (
	errBlocked   = failure{ClassBlocked, "the address is in a private or reserved network"}
	errNoAddress = failure{ClassDNS, "the host name has no public address"}
)

// A guard decides what may be dialled: no address of IANA's special-purpose
// ranges, unless the host opened the address or the name that was asked for.
type guard struct {
	*ssrf.Guardian
	names   map[string]bool // open, in lower case and without the final dot
	lookups *lookups
}

func newGuard(networks []netip.Prefix, names []string) guard {
	var v4, v6 []netip.Prefix
	for _, prefix := range networks {
		if prefix.Addr().Is4() {
			v4 = append(v4, prefix)
		} else {
			v6 = append(v6, prefix)
		}
	}
	g := guard{names: make(map[string]bool), lookups: new(lookups), Guardian: ssrf.New(
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

// refuses reports whether dialling addr would be refused.
func (g guard) refuses(addr netip.Addr) bool { return g.SafeAddr(addr) != nil }

// opens reports whether a host may be dialled wherever it is.
func (g guard) opens(host string) bool { return g.names[plainHost(host)] }

// plainHost returns the form in which equal host names are equal strings.
func plainHost(host string) string { return strings.TrimSuffix(strings.ToLower(host), ".") }

// accountKey is the key of the account in the context of a dial: whose lookup it is.
type accountKey struct{}

// dial connects to a host and port. What a name resolves to is checked when it can
// not change any more: address by address, as each is dialled.
func (g guard) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	var dialer net.Dialer
	if !g.opens(host) {
		dialer.Control = g.Safe
	}
	var conn net.Conn
	if _, notAddress := netip.ParseAddr(host); notAddress == nil {
		conn, err = dialer.DialContext(ctx, network, address)
	} else {
		account, _ := ctx.Value(accountKey{}).(string)
		var addrs []netip.Addr
		if addrs, err = g.lookups.of(ctx, account, host); err == nil && len(addrs) == 0 {
			err = errNoAddress
		}
		if err == nil {
			conn, err = dialAny(ctx, &dialer, network, addrs, port)
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
