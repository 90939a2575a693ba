package webhooks

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/storageapi/storageapi/webhooks/internal/outbound"
)

// The client can use every URL that the check accepts, and interprets it as the check does.
func FuzzCheckURL(f *testing.F) {
	for _, seed := range []string{
		"https://example.com/hooks?x=y", "https://8.8.8.8:8443/", "https://[2606:4700:4700::1111]/", "https://user@example.com/",
		"https://127.0.0.1/", "https://0x7f.1/", "https://[::ffff:127.0.0.1]/", "https://[fe80::1%25lo]/", "https://localhost./",
		"https://example.com:65535", "https://example.com:0", "https://example.com\\@10.0.0.1/", "https://ex%61mple.com/", "HTTPS://A#b",
	} {
		f.Add(seed)
	}
	closed := outbound.NewGuard(nil, nil)
	f.Fuzz(func(t *testing.T, text string) {
		if checkURL(text, closed) != nil {
			return
		}
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Fragment != "" || len(text) > 2048 {
			t.Fatalf("%q is let through: %v", text, err)
		}
		request, err := http.NewRequest(http.MethodPost, text, nil)
		if err != nil || request.URL.Hostname() != u.Hostname() {
			t.Fatalf("%q is let through, and cannot be requested: %v", text, err)
		}
		if shown := origin(text); strings.ContainsAny(strings.TrimPrefix(shown, "https://"), "/?@#") {
			t.Errorf("%q is logged as %q", text, shown)
		}
		port := u.Port()
		if port == "" {
			port = "443"
		}
		if _, err := net.LookupPort("tcp", port); err != nil {
			t.Errorf("%q: port %q: %v", text, port, err)
		}
		// If the dialer takes the host for an address, the guard must allow that address.
		host := strings.TrimSuffix(u.Hostname(), ".")
		addr, err := netip.ParseAddr(host)
		if err == nil && closed.Refuses(addr) {
			t.Errorf("%q points at %v", text, addr)
		}
		last := strings.ToLower(host[strings.LastIndex(host, ".")+1:])
		if err != nil && (strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x") && strings.Trim(last[2:], "0123456789abcdef") == "") {
			t.Errorf("%q: some resolvers take %q for an address", text, host)
		}
		if last == "localhost" {
			t.Errorf("%q points at this machine", text)
		}
	})
}
