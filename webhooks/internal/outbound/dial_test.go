package outbound

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/storageapi/storageapi/internal/testbubble"
)

// For a name with thousands of addresses, an attempt dials only a few of them. Otherwise the name's
// owner could use this host as a port scanner.
func TestDialAny_NameWithThousandsOfAddresses_TriesAFewOfEachFamily(t *testing.T) {
	t.Parallel()
	var four, six []netip.Addr
	for i := range 2000 {
		four = append(four, netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}))
		six = append(six, netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 14: byte(i >> 8), 15: byte(i)}))
	}
	for name, addrs := range map[string][]netip.Addr{"IPv4": four, "IPv6": six, "both": slices.Concat(four, six)} {
		var tried struct{ four, six atomic.Int64 }
		dialer := net.Dialer{Control: func(network, _ string, _ syscall.RawConn) error {
			if network == "tcp4" {
				tried.four.Add(1)
			} else {
				tried.six.Add(1)
			}
			return syscall.ECONNREFUSED
		}}
		if _, err := dialAny(t.Context(), &dialer, addrs, "443"); err == nil {
			t.Errorf("%s: connected, want an error", name)
		}
		wantFour, wantSix := int64(maxAddresses), int64(maxAddresses)
		switch name {
		case "IPv4":
			wantSix = 0
		case "IPv6":
			wantFour = 0
		}
		if got := tried.four.Load(); got != wantFour {
			t.Errorf("%s: %d IPv4 addresses were tried, want %d", name, got, wantFour)
		}
		if got := tried.six.Load(); got != wantSix {
			t.Errorf("%s: %d IPv6 addresses were tried, want %d", name, got, wantSix)
		}
	}
}

// A name's IPv4 addresses may drop packets, even all of them.
func TestDialAny_IPv4DropsPackets_TriesIPv6(t *testing.T) {
	for _, addresses := range []int{1, maxAddresses} {
		testbubble.Run(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			addrs := []netip.Addr{netip.IPv6LinkLocalAllRouters()}
			for i := range addresses {
				addrs = append(addrs, netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}))
			}
			tried := false
			dialer := net.Dialer{ControlContext: func(ctx context.Context, network, _ string, _ syscall.RawConn) error {
				if network == "tcp6" {
					tried = true
					return syscall.ECONNREFUSED
				}
				<-ctx.Done()
				return ctx.Err()
			}}
			if _, err := dialAny(ctx, &dialer, addrs, "443"); err == nil || !tried {
				t.Errorf("with %d IPv4 addresses: %v, IPv6 tried: %t", addresses, err, tried)
			}
		})
	}
}
