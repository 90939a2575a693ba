package webhooks

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

const maxURL = 2048

// checkURL checks the address of a webhook: https, a host, no user information,
// no fragment, at most 2,048 characters, and nothing that the guard would
// refuse to dial. Names are not resolved here: what they resolve to is checked
// at every dial.
func checkURL(text string, g guard) error {
	bad := func(reason string) error { return invalid("url", reason) }
	switch {
	case text == "":
		return bad("is required: the https address that receives the events")
	case len(text) > maxURL:
		return bad("must be at most 2,048 characters")
	case strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' || r == '\\' }):
		return bad("must be ASCII without spaces, control characters and backslashes; percent-encode the path, and write an international host name in punycode")
	}
	u, err := url.Parse(text)
	if err != nil {
		return bad("must be a valid URL") // the error would repeat the text
	}
	switch {
	case u.Scheme != "https":
		return bad("must begin with https://")
	case u.Hostname() == "" || u.Opaque != "":
		return bad("must have a host: https://example.com/hooks")
	case u.User != nil:
		return bad("must not hold a user name or password; put a secret into the path or query instead")
	case u.Fragment != "" || strings.Contains(text, "#"):
		return bad("must not have a fragment (#…)")
	}
	if port := u.Port(); port != "" || strings.HasSuffix(u.Host, ":") {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return bad("must have a port from 1 to 65535, or none")
		}
	}
	if reason := checkHost(u.Hostname(), g); reason != "" {
		return bad(reason)
	}
	return nil
}

// checkHost returns what is wrong with a host, or "".
func checkHost(host string, g guard) string {
	const refused = "must be a public address, not one in a private or reserved network"
	host = plainHost(host)
	if strings.Contains(host, ":") {
		addr, err := netip.ParseAddr(host)
		if err != nil || addr.Zone() != "" {
			return "must have a valid IPv6 address without a zone between the brackets"
		}
		if g.refuses(addr) {
			return refused
		}
		return ""
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	if isNumber(last) {
		// Resolvers disagree on 127.1, 0x7f.0.0.1 and 2130706433: only the
		// plain form is let through, and checked.
		addr, err := netip.ParseAddr(host)
		if err != nil {
			return "must have an IPv4 address in its plain form, four decimal numbers without leading zeros"
		}
		if g.refuses(addr) {
			return refused
		}
		return ""
	}
	if !isName(host) {
		return "must have a valid host name"
	}
	if last == "localhost" && !g.opens(host) && g.refuses(netip.AddrFrom4([4]byte{127, 0, 0, 1})) && g.refuses(netip.IPv6Loopback()) {
		return refused
	}
	return ""
}

// isNumber reports whether some resolver could take a host that ends in this
// label for an IPv4 address: decimal, octal or hexadecimal.
func isNumber(label string) bool {
	digits, hex := strings.CutPrefix(label, "0x")
	if hex {
		return strings.Trim(digits, "0123456789abcdef") == ""
	}
	return isDigits(label)
}

// isName checks the form of a DNS name in lower case, which no resolver can take for
// an address; underscores are seen in practice.
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

// origin returns what may be shown of a URL in logs: its scheme, host and port.
// Paths and queries of webhooks often hold secrets.
func origin(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "invalid URL"
	}
	return u.Scheme + "://" + u.Host
}
