// Package clock tells from the system's clock that it was set: the monotonic clock goes
// on as before. A store that lives in one process needs it for two things.
//
// What is past its time is removed by age, and a clock that is wrong must not remove
// what is still owed. So a jump ahead is not believed before it has held for a day: see
// [Clock.Doubt].
//
// What is due later is written with the time at which it is due, and read by a process
// that began under another clock. So those times are of a clock that is not set: see
// [Clock.Steady].
package clock

import (
	"sync"
	"time"
)

const (
	tolerance = time.Minute    // by how much a clock is set without that being a jump
	hold      = 24 * time.Hour // for how long a jump must hold to be believed
	absence   = time.Hour      // for how long nobody looked without that being a jump
)

// A Clock watches the system's clock. The zero Clock is ready, and begins to watch at the
// first call of a method. It sees that the system's clock was set at the next one.
type Clock struct {
	// Now is the system's clock. Default: time.Now.
	Now func() time.Time

	mu     sync.Mutex
	begun  time.Time     // begins the monotonic time
	zero   time.Time     // what the system's clock showed then, as it is set now
	set    time.Duration // see [Clock.Set]
	steady time.Duration // what the steady clock is ahead of the system's, in milliseconds
	doubt  time.Duration
	jumped time.Duration // when it last jumped, by the monotonic clock
	looked time.Duration // when somebody looked last
}

// A Mark is what a clock shows at a moment, to go on from in another process.
type Mark struct {
	Wall   time.Time // by the system's clock
	Steady time.Time // see [Clock.Steady]
	Sure   time.Time // Wall, less what is doubted
}

// Resume makes a clock that was not used go on from a mark of one before. If the clock
// was set back since then, no time has passed. If it is not known what the clock did for
// more than an hour, that much is doubted for a day: it may have been set, too.
func (c *Clock) Resume(m Mark) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall := c.look()
	gone := wall.Sub(m.Wall)
	c.steady, c.doubt = m.Steady.Sub(m.Wall), m.Wall.Sub(m.Sure)
	if gone < -tolerance {
		c.steady -= gone
	}
	if gone < -tolerance || gone > absence {
		c.doubt += gone
	}
	c.steady, c.doubt = c.steady.Truncate(time.Millisecond), max(0, c.doubt)
}

// Watch begins to watch.
func (c *Clock) Watch() { c.Doubt() }

// Mark returns a mark of now.
func (c *Clock) Mark() Mark {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall := c.look()
	return Mark{Wall: wall, Steady: wall.Add(c.steady), Sure: wall.Add(-c.doubt)}
}

// Doubt returns how much of the time that has passed by the system's clock may not have
// passed at all: by how much it was set ahead, or may have been while nobody looked, less
// than a day ago.
func (c *Clock) Doubt() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look()
	return c.doubt
}

// Steady returns what the steady clock shows at t, which is of time.Now in this process.
// It goes on where it was when the system's clock is set, and in another process from a
// [Mark].
func (c *Clock) Steady(t time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall := c.look()
	return wall.Add(c.steady + t.Sub(c.begun) - c.looked)
}

// Wall returns what the system's clock shows, as it is set now, when the steady one shows
// that.
func (c *Clock) Wall(steady time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look()
	return steady.Round(0).Add(-c.steady)
}

// look takes in whether the clock was set, and returns what it shows.
func (c *Clock) look() (wall time.Time) {
	now := time.Now()
	wall = now
	if c.Now != nil {
		wall = c.Now()
	}
	wall = wall.Round(0).Add(c.set)
	if c.begun.IsZero() {
		c.begun, c.zero = now, wall
	}
	monotonic := now.Sub(c.begun)
	jump := wall.Sub(c.zero) - monotonic
	c.zero, c.looked = wall.Add(-monotonic), monotonic
	if jump.Abs() > tolerance {
		c.steady -= jump.Truncate(time.Millisecond)
		if c.doubt = max(0, c.doubt+jump); c.doubt <= tolerance {
			c.doubt = 0 // it is set right again
		}
		c.jumped = monotonic
	}
	if monotonic-c.jumped >= hold {
		c.doubt = 0
	}
	return wall
}

// Set sets the system's clock as far as this one sees it, by so much against what it is.
// It is for tests.
func (c *Clock) Set(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look()
	c.set = by
}
