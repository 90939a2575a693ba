package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrClock is wrapped by the errors of [New], [Open], Deliver, UpdateFileScan and, for keys that are about to
// expire, AddAuditEntries if this node's clock differs from the database's by more than an hour. Receivers
// would reject its signatures, keys would expire too late or too early, and accounts be notified too early.
var ErrClock = errors.New("this node's clock differs from the database's")

const (
	maxSkew    = time.Hour
	clockEvery = time.Minute     // between checks of the database's clock
	clockJumps = 5 * time.Second // jump of this node's clock that makes it check at once
)

// A clock compares this node's clock with the database's.
type clock struct {
	every time.Duration // clockEvery

	mu       sync.Mutex
	right    time.Time // when they were last found to agree
	database time.Time // what the database's clock showed then

	seen  time.Time     // when this node observed the database's clock last
	doubt time.Duration // what was not confirmed of it then
	shown time.Time     // the latest result of Now
}

// due reports whether it is time to check the database's clock.
func (c *clock) due(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	elapsed := now.Sub(c.right)
	jumped := now.Round(0).Sub(c.right.Round(0)) - elapsed
	return elapsed >= c.every || jumped.Abs() >= clockJumps
}

// check returns an error if the database's clock, read after asked, differs too much from
// this node's.
func (c *clock) check(asked, database time.Time) error {
	now := time.Now()
	ahead, behind := asked.Round(0).Sub(database), database.Sub(now.Round(0))
	if by := max(ahead, behind); by > maxSkew {
		way := "ahead of"
		if behind > 0 {
			way = "behind"
		}
		return fmt.Errorf("%w: it is %v %s it, and may differ by %v at most; correct it", ErrClock, by.Round(time.Second), way, maxSkew)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.right, c.database = now, database
	return nil
}

// latest returns the latest time that is stored as now: an hour later than this node's clock shows, or
// than the database's should by what it showed when they agreed. A later one would be that of a clock
// that is wrong, and what is stored under it would be in the future once it is right again.
func (c *clock) latest() time.Time {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	should := c.database.Add(now.Sub(c.right))
	if now = now.Round(0); should.After(now) {
		now = should
	}
	return now.Add(maxSkew)
}

// observed notes an observation that began then.
func (c *clock) observed(began time.Time, doubt time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen, c.doubt = began, doubt
}

// recent reports whether this node has observed the database's clock lately.
func (c *clock) recent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.seen.IsZero() && time.Since(c.seen) < observeFor
}

func (c *clock) doubted() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.doubt
}

// show notes a result of Now.
func (c *clock) show(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shown = now
}

// ahead returns by how much times that follow from the latest result of Now may be ahead of what is
// confirmed: the clock may have been set back since.
func (c *clock) ahead(confirmed *confirmedClock) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(confirmed.doubt(), c.shown.Sub(confirmed.now()))
}

// checkClock checks the database's clock if that is due.
func (s *Store) checkClock(ctx context.Context) error {
	asked := time.Now()
	if !s.clock.due(asked) {
		return nil
	}
	now, _, err := s.observeClock(ctx)
	if err != nil {
		return err
	}
	return s.clock.check(asked, now)
}

// A databaseClock converts times of the confirmed clock to this node's.
type databaseClock struct {
	mu           sync.Mutex
	at, database time.Time // the same moment; zero: not known
}

// maxDrift is by how much the clocks may differ from what is known of them. What is read with one
// statement and what with the next keep their order meanwhile.
const maxDrift = time.Second

// set notes what the confirmed clock shows now, unless that is as expected, or later only.
func (c *databaseClock) set(database time.Time) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if late := c.at.Add(database.Sub(c.database)).Sub(now); c.at.IsZero() || late > 0 || late < -maxDrift {
		c.at, c.database = now, database
	}
}

// here returns when the confirmed clock shows that time.
func (c *databaseClock) here(database time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at.Add(database.Sub(c.database))
}
