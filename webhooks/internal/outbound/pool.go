package outbound

import (
	"math/rand/v2"
	"sync"
	"time"
)

const (
	idleTimeout = 90 * time.Second
	sweepPause  = time.Second // at least, so that those that expire at about the same time are closed together

	// Of new connections that find the pool full one in admitOneIn is kept, in place of
	// another, chosen at random. Where there are more hosts than places and events go to one
	// host after the other, least-recently-used eviction closes just what is needed next,
	// and no connection is used again; random eviction alone uses 20 % at two hosts a place,
	// this 45 %; 50 % is possible.
	admitOneIn = 4
)

// A pool keeps connections for later requests, at most max of them. One that was taken has
// its place until it is put back or dropped. Nothing in it takes longer when it keeps more.
type pool struct {
	max     int
	maxOpen int             // with those in use, while any is idle; 0: any number
	random  func(n int) int // from 0 to n-1; nil: rand.IntN

	mu             sync.Mutex
	top            map[string]*conn // by address, the one that was used last
	newest, oldest *conn            // of those that are idle
	idle           []*conn          // in no order
	taken          int              // connections that will come back
	inUse          int              // those, and new ones, also while they are made

	// refused are addresses of new connections that were not kept. The next one to the same
	// address is: a burst of events to one host is no reason to connect for each.
	refused map[string]struct{}
	expiry  *time.Timer // while any may be idle
}

// A place is that of a connection in a pool: among all, and among those to its address.
type place struct {
	since        time.Time
	index        int   // in pool.idle
	newer, older *conn // of all
	above, below *conn // above was used later; to the same address
}

// take returns a connection to the address on which nothing has come, ready until the
// deadline, or nil if there is none.
func (p *pool) take(address string, deadline time.Time) *conn {
	for {
		c := p.pop(address)
		if c == nil || c.isQuiet(deadline) {
			return c
		}
		p.drop(c)
	}
}

// pop returns the connection to the address that was used last, or nil.
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

// begin counts a connection that is about to be made, for which another may have to give
// way. made must follow.
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

// made notes what came of begin: a connection in use, or nil.
func (p *pool) made(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c == nil {
		p.inUse--
	} else {
		c.inUse = true
	}
}

// drop closes a connection that was taken, or is new.
func (p *pool) drop(c *conn) {
	p.mu.Lock()
	p.endUse(c)
	p.mu.Unlock()
	c.close()
}

// endUse gives up the place of a connection that was in use.
func (p *pool) endUse(c *conn) {
	if c.taken {
		p.taken--
	}
	if c.inUse {
		p.inUse--
	}
	c.taken, c.inUse = false, false
}

// put keeps a connection until it is taken, or is not needed for too long, or gives way to
// another. If there is no room for one that is new it may be closed.
func (p *pool) put(c *conn) {
	c.rest()
	if surplus := p.add(c); surplus != nil {
		surplus.close()
	}
}

// add adds a connection and returns what has no room: another, itself, or nil.
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

// admits reports whether a new connection to the address is to be kept in place of another.
func (p *pool) admits(address string) bool {
	_, again := p.refused[address]
	if again || p.draw(admitOneIn) == 0 {
		delete(p.refused, address)
		return true
	}
	if len(p.refused) >= p.max/4 {
		clear(p.refused)
	}
	p.refused[address] = struct{}{}
	return false
}

// draw returns a random number from 0 to n-1.
func (p *pool) draw(n int) int {
	if p.random != nil {
		return p.random(n)
	}
	return rand.IntN(n)
}

// remove removes one that is idle.
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

// removeAny removes one of those that are idle, chosen at random, and returns it to be closed.
func (p *pool) removeAny() *conn {
	c := p.idle[p.draw(len(p.idle))]
	p.remove(c)
	return c
}

// removeOldest removes up to n, the least recently used first, and returns them to be
// closed, which others had better not wait for.
func (p *pool) removeOldest(n int) (removed []*conn) {
	for len(removed) < n && p.oldest != nil {
		removed = append(removed, p.oldest)
		p.remove(p.oldest)
	}
	return removed
}

// sweep closes those that have been idle for too long.
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
		p.expiry.Stop() // another's, if close was called meanwhile
		p.expiry = nil
	}
	return removed
}

// release closes an eighth of all, the least recently used, and reports whether there
// was any. Others that need what it frees wait until it is free.
func (p *pool) release() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	removed := p.removeOldest((len(p.idle) + 7) / 8)
	for _, c := range removed {
		c.close()
	}
	return len(removed) > 0
}

// size returns how many are idle.
func (p *pool) size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle)
}

// close closes all that are idle.
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
