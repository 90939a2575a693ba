package auth

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Networks limit the client addresses of a key. They are IP networks in CIDR notation, in ascending
// order, separated by spaces; see [ParseNetworks]. Empty means no limit.
type Networks string

// MaxNetworks is the maximum number of networks of a key.
const MaxNetworks = 32

// ParseNetworks returns the listed networks without duplicates. A single address stands for a
// network of that address only. IPv4-mapped IPv6 addresses and networks become IPv4. ParseNetworks
// returns an error for more than [MaxNetworks], for a network with bits set after its prefix, and
// for addresses with a zone.
func ParseNetworks(list []string) (Networks, error) {
	if len(list) > MaxNetworks {
		return "", fmt.Errorf("must have at most %d networks", MaxNetworks)
	}
	prefixes := make([]netip.Prefix, len(list))
	for i, text := range list {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			address, invalid := netip.ParseAddr(text)
			if invalid != nil || address.Zone() != "" {
				return "", fmt.Errorf("must be IP networks such as 192.0.2.0/24, or addresses: %.50q", text)
			}
			p = netip.PrefixFrom(address, address.BitLen())
		}
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		if p != p.Masked() {
			return "", fmt.Errorf("must be IP networks without bits after the prefix: %s, not %s", p.Masked(), p)
		}
		prefixes[i] = p
	}
	slices.SortFunc(prefixes, netip.Prefix.Compare)
	var names []string
	for _, p := range slices.Compact(prefixes) {
		names = append(names, p.String())
	}
	return Networks(strings.Join(names, " ")), nil
}

// Names returns the networks in CIDR notation, or nil if there is no limit.
func (n Networks) Names() []string { return strings.Fields(string(n)) }

// Allows reports whether an address is in one of the networks, or there is no limit. If there is a
// limit, it does not allow the zero Addr, which stands for an unknown address.
func (n Networks) Allows(address netip.Addr) bool {
	return n == "" || n.has(func(p netip.Prefix) bool { return p.Contains(address) })
}

// Covers reports whether n allows every address that other allows. It returns false if only several
// networks of n together contain a network of other.
func (n Networks) Covers(other Networks) bool {
	if n == "" || other == "" {
		return n == ""
	}
	return !other.has(func(inner netip.Prefix) bool {
		return !n.has(func(p netip.Prefix) bool { return p.Bits() <= inner.Bits() && p.Contains(inner.Addr()) })
	})
}

func (n Networks) has(matches func(netip.Prefix) bool) bool {
	for name := range strings.FieldsSeq(string(n)) {
		if p, err := netip.ParsePrefix(name); err == nil && matches(p) {
			return true
		}
	}
	return false
}

// ParseAddress returns the client address in text, such as the result of [Config.ClientAddress]. An
// IPv4-mapped IPv6 address becomes IPv4, and a zone is removed. For any other text, ParseAddress
// returns the zero Addr.
func ParseAddress(text string) netip.Addr {
	address, _ := netip.ParseAddr(strings.Trim(text, "[]"))
	return address.Unmap().WithZone("")
}

// addressOf returns the client address of a request, which may be any text, or "".
func (a *Authenticator) addressOf(r *http.Request) string {
	if a.clientAddress != nil {
		return a.clientAddress(r)
	}
	i := strings.LastIndexByte(r.RemoteAddr, ':')
	return r.RemoteAddr[:max(i, 0)]
}
