package outbound

import (
	"context"
	"net"
	"net/netip"
	"time"
)

const (
	minDialTimeout = 2 * time.Second // per address, but at most half of the time left
	maxAddresses   = 8               // tried per address family
)

// dialAny connects to one of a name's addresses. It tries one after the other, the families in turn,
// IPv4 first, because more hosts lack IPv6. It tries only the first maxAddresses of each family,
// because a name's owner can point it at thousands of third-party addresses.
func dialAny(ctx context.Context, dialer *net.Dialer, addrs []netip.Addr, port string) (net.Conn, error) {
	var four, six []netip.Addr
	for _, addr := range addrs {
		if addr = addr.Unmap(); addr.Is4() {
			four = append(four, addr)
		} else {
			six = append(six, addr)
		}
	}
	var tried []netip.Addr
	for i := range maxAddresses {
		if i < len(four) {
			tried = append(tried, four[i])
		}
		if i < len(six) {
			tried = append(tried, six[i])
		}
	}
	var failed error
	for i, addr := range tried {
		timed, cancel := ctx, context.CancelFunc(func() {})
		if deadline, ok := ctx.Deadline(); ok && i < len(tried)-1 {
			left := time.Until(deadline)
			timed, cancel = context.WithTimeout(ctx, max(left/time.Duration(len(tried)-i), min(minDialTimeout, left/2)))
		}
		conn, err := dialer.DialContext(timed, "tcp", net.JoinHostPort(addr.String(), port))
		cancel()
		if err == nil {
			return conn, nil
		}
		if failed = betterError(failed, err); ctx.Err() != nil {
			break
		}
	}
	return nil, failed
}

// betterError returns the error that says more about the receiver. This is the earlier error,
// unless it is nil or only says that this host cannot reach addresses of that family.
func betterError(earlier, later error) error {
	if earlier == nil || suspect(earlier) == likelyHost && suspect(later) != likelyHost {
		return later
	}
	return earlier
}
