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
	maxLookupsOfOne  = 16 // of one owner
	maxSeenNames     = 65_536
	longestLookup    = time.Minute // a resolver that has no end of its own
	errLookupTooLong = "timed out"
)

// maxLookups is how many lookups may run at a time of names of each standing and those of
// lower standings: what is likely to hang leaves room for what is not.
var maxLookups = [...]int{Failing: 64, Untried: 128, Proven: 256}

var errCrowded = Failure{KindInternal, "too many host names are being looked up"}

// lookups looks up host names. Those who wait for the same name share a lookup. No owner can
// hold up the others: each may have a part of what is free, the owner with the fewest
// lookups is next, and names that were not found the last time, such as those of a dead
// name server, have a part of what new names have. The zero lookups is ready.
type lookups struct {
	resolve func(ctx context.Context, name string) ([]netip.Addr, error) // nil: the system's resolver

	mu       sync.Mutex
	underWay map[string]*lookup // by name, with those that wait
	waiting  []*lookup          // whose turn has not come, in order
	running  [Proven + 1]int    // of each standing and those below
	owners   map[string]int     // how many run, by owner
	found    map[string]bool    // names that were looked up, and whether they were found the last time
}

// A lookup is of one name.
type lookup struct {
	name     string
	owner    string
	standing Standing
	begun    bool
	waiters  int
	done     chan struct{}
	addrs    []netip.Addr
	err      error
}

// of returns the addresses of a name, or the error of the lookup, which is errCrowded if
// its turn did not come before ctx ended.
func (l *lookups) of(ctx context.Context, by caller, name string) ([]netip.Addr, error) {
	l.mu.Lock()
	one := l.join(by, name)
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
		l.leave(one)
	}
	return nil, errCrowded
}

// join returns the lookup of a name: the one under way, or a new one. One that waits
// becomes the caller's if its turn comes sooner then.
func (l *lookups) join(by caller, name string) *lookup {
	if l.underWay == nil {
		l.underWay, l.owners, l.found = make(map[string]*lookup), make(map[string]int), make(map[string]bool)
	}
	standing := by.standing
	switch found, seen := l.found[name]; {
	case found:
		standing = Proven
	case seen:
		standing = Failing
	}
	one := l.underWay[name]
	switch {
	case one == nil:
		one = &lookup{name: name, owner: by.owner, standing: standing, done: make(chan struct{})}
		l.underWay[name] = one
		l.waiting = append(l.waiting, one)
	case one.begun:
		return one
	case standing > one.standing, standing == one.standing && l.owners[by.owner] < l.owners[one.owner]:
		one.owner, one.standing = by.owner, standing
	}
	if l.mayBegin(one) { // the others that wait may not: nothing has ended
		l.begin(one)
	}
	return one
}

// beginNext begins those whose turn it is.
func (l *lookups) beginNext() {
	for {
		var next *lookup
		for _, one := range l.waiting {
			if l.mayBegin(one) && (next == nil || l.owners[one.owner] < l.owners[next.owner]) {
				next = one
			}
		}
		if next == nil {
			return
		}
		l.begin(next)
	}
}

func (l *lookups) begin(one *lookup) {
	l.leave(one)
	one.begun = true
	l.count(one, 1)
	go l.run(one)
}

// leave takes a lookup out of those that wait.
func (l *lookups) leave(one *lookup) {
	if i := slices.Index(l.waiting, one); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
}

// mayBegin reports whether there is room for a lookup, and its owner has no more than an
// eighth of it.
func (l *lookups) mayBegin(one *lookup) bool {
	room := maxLookups[Proven]
	for s := one.standing; s <= Proven; s++ {
		room = min(room, maxLookups[s]-l.running[s])
	}
	return room > 0 && l.owners[one.owner] < max(1, min(maxLookupsOfOne, room/8))
}

func (l *lookups) count(one *lookup, n int) {
	for s := one.standing; s <= Proven; s++ {
		l.running[s] += n
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
	if len(l.found) >= maxSeenNames {
		clear(l.found)
	}
	l.found[one.name] = err == nil
	close(one.done)
	l.beginNext()
}
