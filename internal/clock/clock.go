// Package clock detects that the system's clock was set, by comparing it with the
// monotonic clock. A store in one process needs this twice:
//
//   - Records are removed by age, and a clock that was set ahead must not remove pending
//     deliveries. So a jump ahead is not believed until it has held for a day: see
//     [Clock.Doubt].
//   - Due times are stored and read by a later process, whose clock may have been set.
//     So they are times of a clock that is never set: see [Clock.Steady].
package clock

import (
	"sync"
	"time"
)

const (
	tolerance = time.Minute    // a smaller change is no jump
	hold      = 24 * time.Hour // how long a jump must hold to be believed
	absence   = time.Hour      // a shorter absence is no jump
)

// A Clock watches the system's clock. The zero Clock is ready to use and starts watching
// at the first call of a method. Each later call detects whether the clock was set.
type Clock struct {
	// Now is the system's clock. Default: time.Now.
	Now func() time.Time

	mu     sync.Mutex
	begun  time.Time     // the start of the monotonic time
	zero   time.Time     // the system's time at begun, by the clock as it is set now
	set    time.Duration // see [Clock.Set]
	steady time.Duration // the steady clock minus the system's, in whole milliseconds
	doubt  time.Duration
	jumped time.Duration // the last jump, by the monotonic clock
	looked time.Duration // the last look, by the monotonic clock
}

// A Mark is a reading of a clock, from which another process resumes.
type Mark struct {
	Wall   time.Time // the system's time
	Steady time.Time // see [Clock.Steady]
	Sure   time.Time // Wall minus the doubt
}

// Resume continues from a mark of an earlier process; c must be unused. If the clock was
// set back since the mark, no time has passed. If more than an hour has passed since the
// mark, that time is doubted for a day, because the clock may have been set.
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

// Time returns the system's time.
func (c *Clock) Time() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.look()
}

// Published returns when an event is published that is stored now, after one of that time: not before it, so that
// events are in the order of their times, unless it is more than an hour ahead. Such a time was given under a clock
// that was ahead, and says nothing about the events after it.
func (c *Clock) Published(last time.Time) time.Time {
	now := c.Time()
	if now.Before(last) && last.Sub(now) <= hold {
		return last
	}
	return now
}

// Ahead reports whether a time is more than a day ahead: the clock was wrong when it was given, or is wrong now.
func (c *Clock) Ahead(t time.Time) bool { return t.Sub(c.Time()) > hold }

// Watch starts watching.
func (c *Clock) Watch() { c.Doubt() }

// Mark returns the reading of now.
func (c *Clock) Mark() Mark {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall := c.look()
	return Mark{Wall: wall, Steady: wall.Add(c.steady), Sure: wall.Add(-c.doubt)}
}

// Doubt returns how much of the time that has passed by the system's clock may not have
// passed in fact: by how much the clock was set ahead less than a day ago, or may have
// been while no process watched it.
func (c *Clock) Doubt() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look()
	return c.doubt
}

// Steady returns the time of the steady clock at t, a time of time.Now in this process.
// The steady clock is not set with the system's clock, and continues from a [Mark] in
// another process.
func (c *Clock) Steady(t time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall := c.look()
	return wall.Add(c.steady + t.Sub(c.begun) - c.looked)
}

// Wall returns the system's time, by the clock as it is set now, at a steady time.
func (c *Clock) Wall(steady time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look()
	return steady.Round(0).Add(-c.steady)
}

// look detects whether the clock was set, and returns its time.
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
			c.doubt = 0 // it was corrected
		}
		c.jumped = monotonic
	}
	if monotonic-c.jumped >= hold {
		c.doubt = 0
	}
	return wall
}

// Set makes c see a system's clock that was set by that much, for tests.
func (c *Clock) Set(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look()
	c.set = by
}
