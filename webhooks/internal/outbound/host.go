package outbound

import (
	"net/netip"
	"strings"
)

// CheckHost validates the host of a URL. It returns "" if the host is valid, or a message if the
// host is malformed or an address that the guard refuses. It does not look names up, because
// their addresses are checked when they are dialed.
func (g *Guard) CheckHost(host string) string {
	const refused = "must be a public address, not one in a private or reserved network"
	host = plainHost(host)
	if strings.Contains(host, ":") {
		addr, err := netip.ParseAddr(host)
		if err != nil || addr.Zone() != "" {
			return "must have a valid IPv6 address without a zone between the brackets"
		}
		if g.Refuses(addr) {
			return refused
		}
		return ""
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	if isNumber(last) {
		// Resolvers disagree on 127.1, 0x7f.0.0.1 and 2130706433, so only the plain form is
		// accepted and checked.
		addr, err := netip.ParseAddr(host)
		if err != nil {
			return "must have an IPv4 address in its plain form, four decimal numbers without leading zeros"
		}
		if g.Refuses(addr) {
			return refused
		}
		return ""
	}
	if !isName(host) {
		return "must have a valid host name"
	}
	if last == "localhost" && !g.allowsName(host) && g.Refuses(netip.AddrFrom4([4]byte{127, 0, 0, 1})) && g.Refuses(netip.IPv6Loopback()) {
		return refused
	}
	return ""
}

// isNumber reports whether label, the last label of a host, makes some resolvers read the host as
// an IPv4 address in decimal, octal or hexadecimal.
func isNumber(label string) bool {
	digits, hex := strings.CutPrefix(label, "0x")
	if hex {
		return strings.Trim(digits, "0123456789abcdef") == ""
	}
	return isDigits(label)
}

// IsHostName reports whether a host has the form of a DNS name that no resolver can read as an
// address.
func IsHostName(host string) bool { return isName(plainHost(host)) }

// isName is like IsHostName, for a plain host. It allows underscores, which occur in practice.
func isName(host string) bool {
	var last string
	for label := range strings.SplitSeq(host, ".") {
		last = label
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	return len(host) <= 253 && !isNumber(last)
}

// plainHost returns the canonical form of a host name: lower case, without a final dot.
func plainHost(host string) string { return strings.TrimSuffix(strings.ToLower(host), ".") }

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
