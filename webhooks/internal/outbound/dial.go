package outbound

import (
	"context"
	"net"
	"net/netip"
	"time"
)

const (
	fallbackDelay  = 300 * time.Millisecond // before the second address family is tried in parallel
	minDialTimeout = 2 * time.Second        // per address, unless it is the last one
	maxAddresses   = 8                      // tried per address family
)

// dialAny connects to one of a name's addresses, as [net.Dialer] does: it tries one address after
// the other, and after fallbackDelay also the second address family in parallel (Happy Eyeballs,
// RFC 8305). It tries only the first maxAddresses of each family, because a name's owner can point
// it at thousands of third-party addresses.
func dialAny(ctx context.Context, dialer *net.Dialer, addrs []netip.Addr, port string) (net.Conn, error) {
	var first, second []netip.Addr
	for _, addr := range addrs {
		if addr = addr.Unmap(); addr.Is4() == addrs[0].Unmap().Is4() {
			first = append(first, addr)
		} else {
			second = append(second, addr)
		}
	}
	first, second = first[:min(len(first), maxAddresses)], second[:min(len(second), maxAddresses)]
	if len(second) == 0 {
		return dialEach(ctx, dialer, first, port)
	}
	type dialed struct {
		conn net.Conn
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan dialed, 2)
	begin := func(addrs []netip.Addr) {
		conn, err := dialEach(ctx, dialer, addrs, port)
		results <- dialed{conn, err}
	}
	go begin(first)
	late := time.NewTimer(fallbackDelay)
	defer late.Stop()
	var failed error
	for running := 1; running > 0; {
		select {
		case <-late.C:
			if second != nil {
				running++
				go begin(second)
				second = nil
			}
		case one := <-results:
			running--
			if one.err == nil {
				if running > 0 {
					go func() { // close the losing connection
						if loser := <-results; loser.err == nil {
							_ = loser.conn.Close()
						}
					}()
				}
				return one.conn, nil
			}
			failed = betterError(failed, one.err)
			if second != nil {
				running++
				go begin(second)
				second = nil
			}
		}
	}
	return nil, failed
}

// dialEach dials the addresses in order and returns the first connection.
func dialEach(ctx context.Context, dialer *net.Dialer, addrs []netip.Addr, port string) (net.Conn, error) {
	var failed error
	for i, addr := range addrs {
		timed, cancel := ctx, context.CancelFunc(func() {})
		if deadline, ok := ctx.Deadline(); ok && i < len(addrs)-1 {
			share := time.Until(deadline) / time.Duration(len(addrs)-i)
			timed, cancel = context.WithTimeout(ctx, max(share, minDialTimeout))
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
