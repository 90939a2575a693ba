package webhooks

import (
	"net/netip"

	"code.dny.dev/ssrf"
)

// azureWireServer is a public address that is special on Azure's machines only;
// IANA's registries do not list it.
var azureWireServer = netip.MustParsePrefix("168.63.129.16/32")

// A guard decides which addresses may be dialled: none of IANA's special-purpose
// ranges, unless the host opened it.
type guard struct{ *ssrf.Guardian }

func newGuard(allow []netip.Prefix) guard {
	var v4, v6 []netip.Prefix
	for _, prefix := range allow {
		if prefix.Addr().Is4() {
			v4 = append(v4, prefix)
		} else {
			v6 = append(v6, prefix)
		}
	}
	return guard{ssrf.New(
		ssrf.WithAnyPort(),
		ssrf.WithAllowedV4Prefixes(v4...),
		ssrf.WithAllowedV6Prefixes(v6...),
		ssrf.WithDeniedV4Prefixes(azureWireServer),
	)}
}

// refuses reports whether dialling addr would be refused.
func (g guard) refuses(addr netip.Addr) bool { return g.SafeAddr(addr) != nil }
