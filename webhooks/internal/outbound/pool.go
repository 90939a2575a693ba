package outbound

import (
	"sync"
	"time"
)

const (
	idleTimeout = 90 * time.Second
	sweepPause  = time.Second // minimum time between two sweeps; batches connections that expire at about the same time

	// A full pool keeps one in admitOneIn new connections, in place of a random idle one. Suppose
	// that events go to one host after the other, and there are more hosts than places. Then
	// least-recently-used eviction would close exactly the connections that are needed next, and
	// reuse none. At two hosts per place, plain random eviction reuses 20 %, this policy 45 %, the
	// optimum 50 %.
	admitOneIn = 4
)

// A pool keeps up to max connections for later requests. A taken connection holds its place
// until it is put back or dropped. All operations on single connections take constant time.
type pool struct {
	max     int
	maxOpen int             // maximum number of open connections, idle or in use; 0 means no limit
	random  func(n int) int // returns 0 to n-1

	mu             sync.Mutex
	top            map[string]*conn // most recently used idle connection by address
	newest, oldest *conn            // idle connections by time of last use
	idle           []*conn          // in no order
	taken          int              // number of connections that keep their place while in use
	inUse          int              // taken and new connections, including those being dialed

	// refused holds addresses for which the last new connection was not kept. The next connection
	// to such an address is kept, so that a burst of events for one host does not connect for each
	// event.
	refused map[string]struct{}
	expiry  *time.Timer // nil if no connection is idle
}

// A place is the position of an idle connection in the pool's lists.
type place struct {
	since        time.Time
	index        int   // in pool.idle
	newer, older *conn // among all connections
	above, below *conn // among connections to the same address; above was used later
}

// take returns an idle connection to the address, with its deadline set, or nil if there is none.
// It drops connections that are closed or have received unexpected bytes.
func (p *pool) take(address string, deadline time.Time) *conn {
	for {
		c := p.pop(address)
		if c == nil || c.isQuiet(deadline) {
			return c
		}
		p.drop(c)
	}
}

// pop removes and returns the most recently used connection to the address, or returns nil.
func (p *pool) pop(address string) *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.top[address]
	if c != nil {
		p.remove(c)
		c.taken, c.inUse = true, true
		p.taken++
		p.inUse++
	}
	return c
}

// begin counts a connection that is about to be dialed, and closes a random idle one if there
// would be more than maxOpen. The caller must call made after the dial.
func (p *pool) begin() {
	p.mu.Lock()
	p.inUse++
	var surplus *conn
	if p.maxOpen > 0 && len(p.idle) > 0 && len(p.idle)+p.inUse > p.maxOpen {
		surplus = p.removeAny()
	}
	p.mu.Unlock()
	if surplus != nil {
		surplus.close()
	}
}

// made records the result of the dial that begin has counted; c is nil if the dial failed.
func (p *pool) made(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c == nil {
		p.inUse--
	} else {
		c.inUse = true
	}
}

// drop closes a connection in use.
func (p *pool) drop(c *conn) {
	p.mu.Lock()
	p.endUse(c)
	p.mu.Unlock()
	c.close()
}

// endUse releases the place that a connection in use holds in the pool.
func (p *pool) endUse(c *conn) {
	if c.taken {
		p.taken--
	}
	if c.inUse {
		p.inUse--
	}
	c.taken, c.inUse = false, false
}

// put makes a connection idle. It stays open until it is taken, expires or is evicted. If the
// pool is full, a new connection may be closed at once.
func (p *pool) put(c *conn) {
	c.rest()
	if surplus := p.add(c); surplus != nil {
		surplus.close()
	}
}

// add adds c. If the pool is full, add returns a connection to close: an evicted connection, or
// c.
func (p *pool) add(c *conn) (surplus *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endUse(c)
	if p.top == nil {
		p.top, p.refused = make(map[string]*conn), make(map[string]struct{})
	}
	if len(p.idle)+p.taken >= p.max {
		if len(p.idle) == 0 || !p.admits(c.address) {
			return c
		}
		surplus = p.removeAny()
	}
	if p.expiry == nil {
		p.expiry = time.AfterFunc(idleTimeout, p.sweep)
	}
	c.place = place{since: time.Now(), index: len(p.idle), older: p.newest, below: p.top[c.address]}
	p.idle = append(p.idle, c)
	if c.older != nil {
		c.older.newer = c
	} else {
		p.oldest = c
	}
	if c.below != nil {
		c.below.above = c
	}
	p.newest, p.top[c.address] = c, c
	return surplus
}

// admits reports whether a full pool should keep a new connection to the address.
func (p *pool) admits(address string) bool {
	_, again := p.refused[address]
	if again || p.random(admitOneIn) == 0 {
		delete(p.refused, address)
		return true
	}
	if len(p.refused) >= p.max/4 {
		clear(p.refused)
	}
	p.refused[address] = struct{}{}
	return false
}

// remove removes an idle connection.
func (p *pool) remove(c *conn) {
	last := len(p.idle) - 1
	p.idle[c.index] = p.idle[last]
	p.idle[c.index].index = c.index
	p.idle[last] = nil
	p.idle = p.idle[:last]
	if c.newer != nil {
		c.newer.older = c.older
	} else {
		p.newest = c.older
	}
	if c.older != nil {
		c.older.newer = c.newer
	} else {
		p.oldest = c.newer
	}
	switch {
	case c.above != nil:
		c.above.below = c.below
	case c.below != nil:
		p.top[c.address] = c.below
	default:
		delete(p.top, c.address)
	}
	if c.below != nil {
		c.below.above = c.above
	}
	c.place = place{}
}

// removeAny removes a random idle connection. The caller must close it.
func (p *pool) removeAny() *conn {
	c := p.idle[p.random(len(p.idle))]
	p.remove(c)
	return c
}

// removeOldest removes up to n connections, the least recently used first. The caller must close
// them, preferably without holding the lock.
func (p *pool) removeOldest(n int) (removed []*conn) {
	for len(removed) < n && p.oldest != nil {
		removed = append(removed, p.oldest)
		p.remove(p.oldest)
	}
	return removed
}

// sweep closes expired connections.
func (p *pool) sweep() {
	for _, c := range p.removeExpired(time.Now()) {
		c.close()
	}
}

func (p *pool) removeExpired(now time.Time) (removed []*conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.oldest != nil && now.Sub(p.oldest.since) >= idleTimeout {
		removed = append(removed, p.oldest)
		p.remove(p.oldest)
	}
	switch {
	case p.oldest != nil:
		p.expiry.Reset(max(idleTimeout-now.Sub(p.oldest.since), sweepPause))
	case p.expiry != nil:
		p.expiry.Stop() // also stops a timer that was started after a concurrent close
		p.expiry = nil
	}
	return removed
}

// release closes the least recently used eighth of the idle connections, and reports whether
// there were any. It holds the lock meanwhile, so that other callers wait for the freed
// descriptors.
func (p *pool) release() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	removed := p.removeOldest((len(p.idle) + 7) / 8)
	for _, c := range removed {
		c.close()
	}
	return len(removed) > 0
}

// size returns the number of idle connections.
func (p *pool) size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle)
}

// close closes all idle connections.
func (p *pool) close() {
	p.mu.Lock()
	removed := p.removeOldest(len(p.idle))
	if p.expiry != nil {
		p.expiry.Stop()
		p.expiry = nil
	}
	p.mu.Unlock()
	for _, c := range removed {
		c.close()
	}
}
