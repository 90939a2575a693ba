package outbound

import (
	"sync"
	"time"
)

const (
	idleTimeout = 90 * time.Second
	sweepPause  = time.Second // at least, so that those that expire at about the same time are closed together
)

// A pool keeps connections that are idle, at most max of them: the least recently used is
// closed when there is one more. Nothing in it takes longer when it keeps more.
type pool struct {
	max int

	mu             sync.Mutex
	top            map[string]*conn // by address, the one that was used last
	newest, oldest *conn            // of all
	count          int
	expiry         *time.Timer // while there may be any
}

// A place is that of a connection in a pool: among all, and among those to its address.
type place struct {
	since        time.Time
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
		c.close()
	}
}

// pop returns the connection to the address that was used last, or nil.
func (p *pool) pop(address string) *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.top[address]
	if c != nil {
		p.remove(c)
	}
	return c
}

// put keeps a connection until it is taken, or is not needed for too long, or there are
// too many that were used later.
func (p *pool) put(c *conn) {
	c.rest()
	for _, old := range p.add(c) {
		old.close()
	}
}

// add adds a connection and returns what has no room then.
func (p *pool) add(c *conn) (surplus []*conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.top == nil {
		p.top = make(map[string]*conn)
	}
	if p.expiry == nil {
		p.expiry = time.AfterFunc(idleTimeout, p.sweep)
	}
	c.place = place{since: time.Now(), older: p.newest, below: p.top[c.address]}
	if c.older != nil {
		c.older.newer = c
	} else {
		p.oldest = c
	}
	if c.below != nil {
		c.below.above = c
	}
	p.newest, p.top[c.address] = c, c
	p.count++
	return p.removeOldest(p.count - p.max)
}

// remove removes one that is kept.
func (p *pool) remove(c *conn) {
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
	p.count--
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
	removed := p.removeOldest((p.count + 7) / 8)
	for _, c := range removed {
		c.close()
	}
	return len(removed) > 0
}

// close closes all.
func (p *pool) close() {
	p.mu.Lock()
	removed := p.removeOldest(p.count)
	if p.expiry != nil {
		p.expiry.Stop()
		p.expiry = nil
	}
	p.mu.Unlock()
	for _, c := range removed {
		c.close()
	}
}
