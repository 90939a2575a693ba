// Package clock detects that the system's clock was set, by comparing it with the monotonic
// clock. A store in one process needs this for two reasons:
//
//   - Records are removed by age, and a clock that was set ahead must not cause the removal of
//     pending deliveries. So the package trusts a jump ahead only after a day, see [Clock.Doubt].
//   - Stored due times are read by a later process, when the clock may have been set. So they
//     refer to a clock that is never set, see [Clock.Steady].
package clock

import (
	"sync"
	"time"
)

const (
	tolerance    = time.Minute    // smaller changes are not jumps
	confirmation = 24 * time.Hour // how long a jump must last to be trusted
	absence      = time.Hour      // shorter absences are not jumps
)

// A Clock watches the system's clock. The zero Clock is ready to use and starts watching
// at the first call of a method. Each later call detects whether the clock was set.
type Clock struct {
	// Now is the system's clock. Default: time.Now.
	Now func() time.Time

	mu     sync.Mutex
	begun  time.Time     // the start of the monotonic time
	zero   time.Time     // the system's time at begun, according to the current setting
	steady time.Duration // the steady clock minus the system's, in whole milliseconds
	doubt  time.Duration
	jumped time.Duration // monotonic time of the last jump
	read   time.Duration // monotonic time of the last reading
}

// A Mark is a reading of a clock, from which another process resumes.
type Mark struct {
	Wall   time.Time // the system's time
	Steady time.Time // see [Clock.Steady]
	Sure   time.Time // Wall minus the doubt
}

// Resume continues from a mark of an earlier process. c must be unused. If the clock was set back
// since the mark, no time counts as passed. If more than an hour has passed since the mark, that
// time is in doubt for a day, because the clock may have been set.
func (c *Clock) Resume(m Mark) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall := c.readClock()
	elapsed := wall.Sub(m.Wall)
	c.steady, c.doubt = m.Steady.Sub(m.Wall), m.Wall.Sub(m.Sure)
	if elapsed < -tolerance {
		c.steady -= elapsed
	}
	if elapsed < -tolerance || elapsed > absence {
		c.doubt += elapsed
	}
	c.steady, c.doubt = c.steady.Truncate(time.Millisecond), max(0, c.doubt)
}

// Time returns the system's time.
func (c *Clock) Time() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.readClock()
}

// Published returns the publication time of an event that is stored now, given the time of the last
// event. It is never before last, so that events are ordered by time. But if last is more than a
// day ahead, it was read from a wrong clock and is ignored.
func (c *Clock) Published(last time.Time) time.Time {
	now := c.Time()
	if now.Before(last) && last.Sub(now) <= confirmation {
		return last
	}
	return now
}

// Ahead reports whether t is more than a day ahead of the clock. Then the clock was wrong when t
// was read, or is wrong now.
func (c *Clock) Ahead(t time.Time) bool { return t.Sub(c.Time()) > confirmation }

// Watch starts watching the clock.
func (c *Clock) Watch() { c.Doubt() }

// Mark returns the current reading.
func (c *Clock) Mark() Mark {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall := c.readClock()
	return Mark{Wall: wall, Steady: wall.Add(c.steady), Sure: wall.Add(-c.doubt)}
}

// Doubt returns how much of the elapsed time a clock jump may have added. It counts forward jumps
// of the last day, and possible jumps while no process watched the clock.
func (c *Clock) Doubt() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readClock()
	return c.doubt
}

// Steady returns the time of the steady clock at t, which must be a time of time.Now in this
// process. The steady clock ignores changes of the system's clock, and continues from a [Mark] in
// another process.
func (c *Clock) Steady(t time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall := c.readClock()
	return wall.Add(c.steady + t.Sub(c.begun) - c.read)
}

// Wall converts a steady time to the system's time, according to the current setting.
func (c *Clock) Wall(steady time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readClock()
	return steady.Round(0).Add(-c.steady)
}

// readClock returns the system's time, and detects whether the clock was set.
func (c *Clock) readClock() (wall time.Time) {
	now := time.Now()
	wall = now
	if c.Now != nil {
		wall = c.Now()
	}
	wall = wall.Round(0)
	if c.begun.IsZero() {
		c.begun, c.zero = now, wall
	}
	monotonic := now.Sub(c.begun)
	jump := wall.Sub(c.zero) - monotonic
	c.zero, c.read = wall.Add(-monotonic), monotonic
	if jump.Abs() > tolerance {
		c.steady -= jump.Truncate(time.Millisecond)
		if c.doubt = max(0, c.doubt+jump); c.doubt <= tolerance {
			c.doubt = 0 // the clock was corrected
		}
		c.jumped = monotonic
	}
	if monotonic-c.jumped >= confirmation {
		c.doubt = 0
	}
	return wall
}
