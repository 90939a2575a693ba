package outbound

import (
	"sync"
	"time"
)

const (
	maxIdle     = 1024 // connections, also if all are to one host: many webhooks often share one
	idleTimeout = 90 * time.Second
)

// A pool keeps connections that are idle. The zero pool is empty.
type pool struct {
	mu     sync.Mutex
	idle   map[string][]*conn // by address; what was used last comes last
	count  int
	sweeps *time.Timer // while there may be any
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
	idle := p.idle[address]
	if len(idle) == 0 {
		return nil
	}
	last := len(idle) - 1
	c := idle[last]
	idle[last] = nil
	p.idle[address] = idle[:last]
	p.count--
	return c
}

// put keeps a connection until it is taken, or has been idle for too long.
func (p *pool) put(c *conn) {
	c.idle = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count == maxIdle {
		p.drop()
	}
	if p.idle == nil {
		p.idle = make(map[string][]*conn)
	}
	if p.sweeps == nil {
		p.sweeps = time.AfterFunc(idleTimeout, p.sweep)
	}
	p.idle[c.address] = append(p.idle[c.address], c)
	p.count++
}

// drop closes any one.
func (p *pool) drop() {
	for address, idle := range p.idle {
		if len(idle) > 0 {
			idle[0].close()
			p.idle[address] = idle[1:]
			p.count--
			return
		}
	}
}

// sweep closes those that have been idle for too long.
func (p *pool) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for address, idle := range p.idle {
		old := 0
		for old < len(idle) && now.Sub(idle[old].idle) >= idleTimeout {
			idle[old].close()
			old++
		}
		p.count -= old
		if old == len(idle) {
			delete(p.idle, address)
		} else {
			p.idle[address] = idle[old:]
		}
	}
	p.sweeps = nil
	if len(p.idle) > 0 {
		p.sweeps = time.AfterFunc(idleTimeout/3, p.sweep)
	}
}

// close closes all.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, idle := range p.idle {
		for _, c := range idle {
			c.close()
		}
	}
	p.idle, p.count = nil, 0
	if p.sweeps != nil {
		p.sweeps.Stop()
		p.sweeps = nil
	}
}
