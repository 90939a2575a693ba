package outbound

import (
	"context"
	"net"
	"net/netip"
	"time"
)

const (
	headStart    = 300 * time.Millisecond // of one address family before the other
	leastForDial = 2 * time.Second        // for one address of several
	maxAddresses = 8                      // of each family that are tried
)

// dialAny connects to one of a name's addresses, as a [net.Dialer] does: one after the
// other, and those of the other address family at the same time if the first ones are slow
// (Happy Eyeballs, RFC 8305). The first few of each family are tried: a name's owner can give
// it thousands of other people's.
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
	late := time.NewTimer(headStart)
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
					go func() { // the other one, too late
						if late := <-results; late.err == nil {
							_ = late.conn.Close()
						}
					}()
				}
				return one.conn, nil
			}
			failed = telling(failed, one.err)
			if second != nil {
				running++
				go begin(second)
				second = nil
			}
		}
	}
	return nil, failed
}

// dialEach connects to the first of the addresses that can be connected to.
func dialEach(ctx context.Context, dialer *net.Dialer, addrs []netip.Addr, port string) (net.Conn, error) {
	var failed error
	for i, addr := range addrs {
		timed, cancel := ctx, context.CancelFunc(func() {})
		if deadline, ok := ctx.Deadline(); ok && i < len(addrs)-1 {
			share := time.Until(deadline) / time.Duration(len(addrs)-i)
			timed, cancel = context.WithTimeout(ctx, max(share, leastForDial))
		}
		conn, err := dialer.DialContext(timed, "tcp", net.JoinHostPort(addr.String(), port))
		cancel()
		if err == nil {
			return conn, nil
		}
		if failed = telling(failed, err); ctx.Err() != nil {
			break
		}
	}
	return nil, failed
}

// telling returns which of two errors tells more of the receiver: the one before, unless
// there was none, or it is that there is no way to that kind of address.
func telling(before, err error) error {
	if before == nil || suspect(before) == likelyOurs && suspect(err) != likelyOurs {
		return err
	}
	return before
}
