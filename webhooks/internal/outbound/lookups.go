package outbound

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Bounds of the lookups under way. One that the system's resolver makes cannot be
// cancelled, and holds a thread until it ends, whether or not it is waited for.
const (
	maxLookups       = 256
	maxFirstLookups  = maxLookups / 2 // of names that were not found before
	maxLookupsOfOne  = 16             // of one owner
	maxKnownNames    = 65_536
	longestLookup    = time.Minute // a resolver that has no end of its own
	errLookupTooLong = "timed out"
)

var errCrowded = Failure{KindInternal, "too many host names are being looked up"}

// lookups looks up host names. Those who wait for the same name share a lookup. No owner can
// hold up the others: each has a few lookups at a time, and names that were never found,
// such as those of a dead name server, have half of all. The zero lookups is ready.
type lookups struct {
	resolve func(ctx context.Context, name string) ([]netip.Addr, error) // nil: the system's resolver

	mu       sync.Mutex
	underWay map[string]*lookup // by name, with those that wait
	waiting  []*lookup          // whose turn has not come, in order
	running  int
	first    int // of them, those of names that were not found before
	owners   map[string]int
	known    map[string]struct{} // names that were found when they were last looked up
}

// A lookup is of one name.
type lookup struct {
	name, owner  string
	first, begun bool
	waiters      int
	done         chan struct{}
	addrs        []netip.Addr
	err          error
}

// of returns the addresses of a name, or the error of the lookup, which is errCrowded if
// its turn did not come before ctx ended.
func (l *lookups) of(ctx context.Context, owner, name string) ([]netip.Addr, error) {
	l.mu.Lock()
	one := l.underWay[name]
	if one == nil {
		if l.underWay == nil {
			l.underWay, l.owners, l.known = make(map[string]*lookup), make(map[string]int), make(map[string]struct{})
		}
		_, known := l.known[name]
		one = &lookup{name: name, owner: owner, first: !known, done: make(chan struct{})}
		l.underWay[name] = one
		l.waiting = append(l.waiting, one)
		l.begin()
	}
	one.waiters++
	l.mu.Unlock()
	select {
	case <-one.done:
		return one.addrs, one.err
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	one.waiters--
	switch {
	case one.begun && ctx.Err() == context.DeadlineExceeded:
		return nil, &net.DNSError{Err: errLookupTooLong, Name: name, IsTimeout: true, UnwrapErr: ctx.Err()}
	case one.begun:
		return nil, ctx.Err()
	case one.waiters == 0:
		delete(l.underWay, name)
		l.waiting = slices.DeleteFunc(l.waiting, func(other *lookup) bool { return other == one })
	}
	return nil, errCrowded
}

// begin begins those whose turn it is.
func (l *lookups) begin() {
	l.waiting = slices.DeleteFunc(l.waiting, func(one *lookup) bool {
		if l.running == maxLookups || one.first && l.first == maxFirstLookups || l.owners[one.owner] == maxLookupsOfOne {
			return false
		}
		one.begun = true
		l.count(one, 1)
		go l.run(one)
		return true
	})
}

func (l *lookups) count(one *lookup, n int) {
	l.running += n
	if one.first {
		l.first += n
	}
	if l.owners[one.owner] += n; l.owners[one.owner] == 0 {
		delete(l.owners, one.owner)
	}
}

func (l *lookups) run(one *lookup) {
	// It does not end sooner when it is not waited for any more: its thread would not.
	ctx, cancel := context.WithTimeout(context.Background(), longestLookup)
	defer cancel()
	resolve := l.resolve
	if resolve == nil {
		resolve = func(ctx context.Context, name string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		}
	}
	addrs, err := resolve(ctx, one.name)
	l.mu.Lock()
	defer l.mu.Unlock()
	one.addrs, one.err = addrs, err
	delete(l.underWay, one.name)
	l.count(one, -1)
	if delete(l.known, one.name); err == nil {
		if len(l.known) >= maxKnownNames {
			clear(l.known)
		}
		l.known[one.name] = struct{}{}
	}
	close(one.done)
	l.begin()
}
