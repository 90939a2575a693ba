// Package testclock provides a clock that tests can set.
//
//	clock := testclock.At(noon)
//	keys, err := apikeys.New(memory.New(), apikeys.Config{Now: clock.Now})
//	clock.Add(time.Hour)
package testclock

import (
	"sync"
	"time"
)

// A Clock stands still until a test sets it. The zero Clock instead runs ahead of time.Now, by the
// sum of all calls to Add. A Clock is safe for concurrent use.
type Clock struct {
	mu    sync.Mutex
	at    time.Time     // if zero, the clock runs
	ahead time.Duration // how far a running clock is ahead of time.Now
}

// At returns a clock that stands still at the given time.
func At(at time.Time) *Clock { return &Clock{at: at} }

// Now returns the clock's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() {
		return time.Now().Add(c.ahead)
	}
	return c.at
}

// Set makes the clock stand still at the given time.
func (c *Clock) Set(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = at
}

// RunAhead makes the clock run, ahead of time.Now by d, which may be negative.
func (c *Clock) RunAhead(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at, c.ahead = time.Time{}, d
}

// Add moves the clock by d, which may be negative.
func (c *Clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() {
		c.ahead += d
	} else {
		c.at = c.at.Add(d)
	}
}
