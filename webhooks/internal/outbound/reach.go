package outbound

import (
	"net"
	"sync"
	"time"
)

// A reach remembers which receivers were reached last. They are dialed again to find out
// whether a failure is the receiver's or this host's.
type reach struct {
	asking chan struct{} // full while that is done

	mu     sync.Mutex
	last   [3]contact // of different hosts, the latest first
	failed time.Time  // when none of those that were asked could be reached
}

// A contact is a receiver that was reached.
type contact struct {
	host, address string
	at            time.Time
}

// controlTimeout is for each receiver that is dialed again. All of them together take less
// than a lease of a delivery outlasts the timeout of its attempt.
const controlTimeout = 2 * time.Second

// note notes that a new connection was made, or that it could have been.
func (r *reach) note(address string) {
	host, _, _ := net.SplitHostPort(address)
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.last {
		if r.last[i].host == host || i == len(r.last)-1 {
			copy(r.last[1:i+1], r.last[:i])
			break
		}
	}
	r.last[0] = contact{host, address, time.Now()}
}

// others returns the receivers that were reached last at other hosts than that of an
// address, and when that failed last.
func (r *reach) others(address string) (list []contact, failed time.Time) {
	host, _, _ := net.SplitHostPort(address)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, other := range r.last {
		if other.host != "" && other.host != host {
			list = append(list, other)
		}
	}
	return list, r.failed
}

// isOffline reports whether a Post to an address, begun then, failed because this host
// cannot reach the network. The receiver is to blame if an unrelated one was reached
// meanwhile, or can be now: a connection to it is made for that, and closed.
func (c *Client) isOffline(cancel *Canceler, s suspicion, address string, begun time.Time) bool {
	if !c.askNext(cancel) {
		return s == likelyOurs
	}
	defer func() { <-c.reach.asking }()
	others, failed := c.reach.others(address)
	if len(others) == 0 {
		return s == likelyOurs
	}
	for _, other := range others {
		if other.at.After(begun) {
			return false
		}
	}
	if !failed.Before(begun) {
		return true
	}
	for _, other := range others[:min(2, len(others))] {
		if c.canReach(cancel, other.address) {
			return false
		}
	}
	if cancel.Canceled() { // it was not found out
		return s == likelyOurs
	}
	c.reach.mu.Lock()
	defer c.reach.mu.Unlock()
	c.reach.failed = time.Now()
	return true
}

// askNext waits until no other Post asks, for as long as that may take, and reports
// whether this one may.
func (c *Client) askNext(cancel *Canceler) bool {
	ctx, release := cancel.until(time.Now().Add(2 * controlTimeout))
	defer release()
	select {
	case c.reach.asking <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// canReach reports whether there is a way to a receiver. That it refuses to talk shows
// that there is.
func (c *Client) canReach(cancel *Canceler, address string) bool {
	ctx, release := cancel.until(time.Now().Add(controlTimeout))
	defer release()
	conn, err := c.dial(ctx, caller{}, address)
	if err == nil {
		_ = conn.Close()
	} else if suspect(err) != theirs || classify(err) == errTimeout || ctx.Err() != nil {
		return false
	}
	c.reach.note(address)
	return true
}
