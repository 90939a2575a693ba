package outbound

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Limits on running lookups. The system's resolver cannot be canceled: a lookup blocks a thread
// until it ends, even if its caller has stopped waiting.
const (
	maxOwnerLookups = 16 // per owner
	maxSeenNames    = 65_536
	lookupTimeout   = time.Minute // limits resolvers that have no timeout
)

// maxLookups limits concurrent lookups. The limit of a standing applies to names of this standing
// and all lower ones together, so that names whose lookups are likely to hang leave room for
// others.
var maxLookups = [...]int{Failing: 64, Untried: 128, Proven: 256}

var errCrowded = Failure{KindInternal, "too many host names are being looked up"}

// Lookups resolves host names. Concurrent callers for the same name share a lookup. No owner can
// delay the others: an owner may use only a fraction of the free slots, and the owner with the
// fewest running lookups goes first. Names whose last lookup failed, for example because their name
// server is down, get fewer slots than new names.
type Lookups struct {
	resolve func(ctx context.Context, name string) ([]netip.Addr, error)

	mu      sync.Mutex
	byName  map[string]*lookup // waiting and running
	waiting []*lookup          // in order of arrival
	running [Proven + 1]int    // running lookups of each standing and all lower ones
	owners  map[string]int     // running lookups by owner
	found   map[string]bool    // by name: whether its last lookup succeeded
}

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

// NewLookups returns Lookups that resolve each name with resolve, such as [SystemResolver].
func NewLookups(resolve func(ctx context.Context, name string) ([]netip.Addr, error)) *Lookups {
	return &Lookups{resolve: resolve, byName: make(map[string]*lookup), owners: make(map[string]int), found: make(map[string]bool)}
}

// SystemResolver resolves a name with the system's resolver.
func SystemResolver(ctx context.Context, name string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
}

// Addresses resolves a name. It returns errCrowded if the lookup did not start before ctx ended.
func (l *Lookups) Addresses(ctx context.Context, by Caller, name string) ([]netip.Addr, error) {
	l.mu.Lock()
	entry := l.join(by, name)
	entry.waiters++
	l.mu.Unlock()
	select {
	case <-entry.done:
		return entry.addrs, entry.err
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	entry.waiters--
	switch {
	case entry.begun && ctx.Err() == context.DeadlineExceeded:
		return nil, &net.DNSError{Err: "timed out", Name: name, IsTimeout: true, UnwrapErr: ctx.Err()}
	case entry.begun:
		return nil, ctx.Err()
	case entry.waiters == 0:
		delete(l.byName, name)
		l.dequeue(entry)
	}
	return nil, errCrowded
}

// join returns the current lookup of a name, or a new one. A waiting lookup is reassigned to the
// caller if it can start sooner for the caller's owner or standing.
func (l *Lookups) join(by Caller, name string) *lookup {
	standing := by.standing
	switch found, seen := l.found[name]; {
	case found:
		standing = Proven
	case seen:
		standing = Failing
	}
	entry := l.byName[name]
	switch {
	case entry == nil:
		entry = &lookup{name: name, owner: by.owner, standing: standing, done: make(chan struct{})}
		l.byName[name] = entry
		l.waiting = append(l.waiting, entry)
	case entry.begun:
		return entry
	case standing > entry.standing, standing == entry.standing && l.owners[by.owner] < l.owners[entry.owner]:
		entry.owner, entry.standing = by.owner, standing
	}
	if l.mayBegin(entry) { // no other waiting lookup may start, because none has ended
		l.begin(entry)
	}
	return entry
}

// beginNext starts waiting lookups until no more may start.
func (l *Lookups) beginNext() {
	for {
		var next *lookup
		for _, entry := range l.waiting {
			if l.mayBegin(entry) && (next == nil || l.owners[entry.owner] < l.owners[next.owner]) {
				next = entry
			}
		}
		if next == nil {
			return
		}
		l.begin(next)
	}
}

func (l *Lookups) begin(entry *lookup) {
	l.dequeue(entry)
	entry.begun = true
	l.count(entry, 1)
	go l.run(entry)
}

func (l *Lookups) dequeue(entry *lookup) {
	if i := slices.Index(l.waiting, entry); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
}

// mayBegin reports whether a slot is free for a lookup and its owner runs fewer lookups than its
// share: an eighth of the free slots, at most maxOwnerLookups.
func (l *Lookups) mayBegin(entry *lookup) bool {
	room := maxLookups[Proven]
	for s := entry.standing; s <= Proven; s++ {
		room = min(room, maxLookups[s]-l.running[s])
	}
	return room > 0 && l.owners[entry.owner] < max(1, min(maxOwnerLookups, room/8))
}

func (l *Lookups) count(entry *lookup, n int) {
	for s := entry.standing; s <= Proven; s++ {
		l.running[s] += n
	}
	if l.owners[entry.owner] += n; l.owners[entry.owner] == 0 {
		delete(l.owners, entry.owner)
	}
}

func (l *Lookups) run(entry *lookup) {
	// Do not cancel the lookup when its callers have gone: its thread would stay blocked anyway.
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	addrs, err := l.resolve(ctx, entry.name)
	l.mu.Lock()
	defer l.mu.Unlock()
	entry.addrs, entry.err = addrs, err
	delete(l.byName, entry.name)
	l.count(entry, -1)
	if len(l.found) >= maxSeenNames {
		clear(l.found)
	}
	l.found[entry.name] = err == nil
	close(entry.done)
	l.beginNext()
}
