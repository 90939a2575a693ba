package auditlog

import (
	"sync"
	"time"
)

// A Lease allows one holder at a time to report entries. It is kept in memory, because only one
// process can use the file.
type Lease struct {
	mu     sync.Mutex
	holder string
	until  time.Time
}

// Take gives the lease to a holder for ttl, and reports whether the holder has it. A ttl of 0
// returns the lease.
func (l *Lease) Take(holder string, ttl time.Duration) (held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.holder != holder && now.Before(l.until) {
		return false
	}
	l.holder, l.until = holder, now.Add(ttl)
	return ttl > 0
}
