package auth_test

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/auth"
)

func TestParseNetworks_ReturnsCanonicalForm(t *testing.T) {
	for list, want := range map[string]string{
		"":                                    "",
		"192.0.2.0/24":                        "192.0.2.0/24",
		"192.0.2.7 2001:DB8::7":               "192.0.2.7/32 2001:db8::7/128",
		"2001:db8::/32 10.0.0.0/8 10.0.0.0/8": "10.0.0.0/8 2001:db8::/32",
		"::ffff:192.0.2.0/120":                "192.0.2.0/24",
		"::ffff:192.0.2.1":                    "192.0.2.1/32",
		"0.0.0.0/0 ::/0":                      "0.0.0.0/0 ::/0",
		"192.0.2.1/24":                        "error: must be IP networks without bits after the prefix: 192.0.2.0/24, not 192.0.2.1/24",
		"2001:db8::1/64":                      "error: must be IP networks without bits after the prefix: 2001:db8::/64, not 2001:db8::1/64",
		"example.com":                         `error: must be IP networks such as 192.0.2.0/24, or addresses: "example.com"`,
		"fe80::1%eth0":                        `error: must be IP networks such as 192.0.2.0/24, or addresses: "fe80::1%eth0"`,
		"192.0.2.0/33":                        `error: must be IP networks such as 192.0.2.0/24, or addresses: "192.0.2.0/33"`,
		strings.Repeat("10.0.0.1 ", 33):       "error: must have at most 32 networks",
	} {
		networks, err := auth.ParseNetworks(strings.Fields(list))
		got := string(networks)
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != want {
			t.Errorf("ParseNetworks of %q: %s, want %s", list, got, want)
		}
		if again, err := auth.ParseNetworks(networks.Names()); err != nil || again != networks {
			t.Errorf("ParseNetworks of %q: %q, %v, want the same", networks.Names(), again, err)
		}
	}
}

func TestNetworks_Allows(t *testing.T) {
	networks := auth.Networks("192.0.2.0/24 2001:db8::/32 fe80::/10")
	for address, want := range map[string]bool{
		"192.0.2.9": true, "192.0.3.9": false, "::ffff:192.0.2.9": true, "2001:db8::1": true, "[2001:db8::1]": true, "2001:db9::1": false,
		"fe80::1%eth0": true, "": false, "@": false, "192.0.2.9, 192.0.2.10": false, "192.0.2.9:80": false, "host": false,
	} {
		if got := networks.Allows(auth.ParseAddress(address)); got != want {
			t.Errorf("Allows(%q) = %t, want %t", address, got, want)
		}
		if !auth.Networks("").Allows(auth.ParseAddress(address)) {
			t.Errorf("no networks: Allows(%q) = false", address)
		}
	}
	if auth.Networks("no network").Allows(auth.ParseAddress("192.0.2.9")) {
		t.Error("damaged networks allow an address")
	}
}

// If a covers b, a allows every address that b allows.
func TestNetworks_Covers_ImpliesAllows(t *testing.T) {
	random := func() auth.Networks {
		var list []string
		for range rand.IntN(4) {
			address := netip.AddrFrom4([4]byte{10, byte(rand.IntN(2)), byte(rand.IntN(2)), byte(rand.IntN(2))})
			list = append(list, netip.PrefixFrom(address, 8*(1+rand.IntN(4))).Masked().String())
		}
		networks, err := auth.ParseNetworks(list)
		if err != nil {
			t.Fatal(err)
		}
		return networks
	}
	covered := 0
	for range 2000 {
		a, b := random(), random()
		if !a.Covers(a) {
			t.Fatalf("%q does not cover itself", a)
		}
		if !a.Covers(b) {
			continue
		}
		covered++
		for i := range 8 {
			address := netip.AddrFrom4([4]byte{10, byte(i & 1), byte(i >> 1 & 1), byte(i >> 2)})
			if b.Allows(address) && !a.Allows(address) {
				t.Fatalf("%q covers %q, but does not allow %s", a, b, address)
			}
		}
	}
	if covered < 100 {
		t.Errorf("only %d pairs covered", covered)
	}
	if diff := cmp.Diff([]bool{true, false, false}, []bool{auth.Networks("").Covers("10.0.0.0/8"), auth.Networks("10.0.0.0/8").Covers(""), auth.Networks("10.0.0.0/8").Covers("10.0.0.0/7")}); diff != "" {
		t.Error(diff)
	}
}
