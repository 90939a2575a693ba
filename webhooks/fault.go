package webhooks

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A fault is whose fault it is that an attempt failed before there was a response.
type fault uint8

const (
	theirs   fault = iota // the receiver's
	dubious               // the receiver's, unless others cannot be reached either
	doubtful              // this host's, unless others can be reached
	crowded               // this library's own bounds
	ours                  // this host's: it has run out of something
)

// exhausted are the errors of a host that has run out of something.
var exhausted = []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM}

// unreachable are the errors of a host without ports or a network, and of one that has
// no way to the one address that was dialled.
var unreachable = []error{syscall.EADDRNOTAVAIL, syscall.ENETUNREACH, syscall.ENETDOWN}

// isAny reports whether an error is one of those. That of a lookup says so in words only.
func isAny(err error, of []error) bool {
	var dns *net.DNSError
	isLookup := errors.As(err, &dns)
	for _, e := range of {
		if errors.Is(err, e) || isLookup && strings.Contains(dns.Err, e.Error()) {
			return true
		}
	}
	return false
}

func faultOf(err error) fault {
	var dns *net.DNSError
	switch {
	case errors.Is(err, errCrowded):
		return crowded
	case isAny(err, exhausted):
		return ours
	case isAny(err, unreachable):
		return doubtful
	case errors.As(err, new(failure)), !errors.As(err, &dns) || dns.IsNotFound:
		return theirs
	case dns.IsTimeout, strings.Contains(dns.Err, syscall.ECONNREFUSED.Error()):
		return doubtful // also a name server of the host's own that is not there
	}
	return dubious // the host's name server answered
}

// A reach remembers which receivers were reached last, to ask them when there is doubt
// whether anybody can be.
type reach struct {
	asking chan struct{} // full while somebody does

	mu     sync.Mutex
	last   [3]contact // of different hosts, the latest first
	failed time.Time  // when none of those that were asked could be reached
}

// A contact is a receiver that was reached.
type contact struct {
	host, address string
	at            time.Time
}

// controlTimeout is for each receiver that is asked; a lease outlasts the timeout of its
// attempt by more.
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

// isOurs reports whether it is this host's fault that an attempt at an address, begun
// then, failed. Where that is in doubt it is the receiver's if an unrelated one was
// reached meanwhile, or can be now: a connection to it is made for that, and closed.
func (c *client) isOurs(s *stop, f fault, address string, begun time.Time) bool {
	switch f {
	case theirs:
		return false
	case crowded, ours:
		return true
	}
	if !c.askNext(s) {
		return f == doubtful
	}
	defer func() { <-c.reach.asking }()
	others, failed := c.reach.others(address)
	if len(others) == 0 {
		return f == doubtful
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
		if c.canReach(s, other.address) {
			return false
		}
	}
	if s.wasCalled() { // it was not found out
		return f == doubtful
	}
	c.reach.mu.Lock()
	defer c.reach.mu.Unlock()
	c.reach.failed = time.Now()
	return true
}

// askNext waits until nobody else asks, for so long as that may take, unless the attempt
// is stopped, and reports whether it is this one that may.
func (c *client) askNext(s *stop) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 2*controlTimeout)
	defer cancel()
	if !s.hold(dialing(cancel)) {
		return false
	}
	defer s.hold(nil)
	select {
	case c.reach.asking <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// canReach reports whether there is a way to a receiver. That it refuses to talk shows
// that there is.
func (c *client) canReach(s *stop, address string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), controlTimeout)
	defer cancel()
	if !s.hold(dialing(cancel)) {
		return false
	}
	defer s.hold(nil)
	conn, err := c.dial(ctx, "tcp", address)
	if err == nil {
		_ = conn.Close()
	} else if faultOf(err) != theirs || classify(err) == errTimeout || ctx.Err() != nil {
		return false
	}
	c.reach.note(address)
	return true
}
