package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrClock means that this node's clock differs from the database's by more than an hour. Receivers
// would reject the node's signatures, keys would expire too late or too early, and accounts would
// be notified too early. [New], [Open], Deliver, UpdateScan and, for keys that are about to expire,
// AddAuditEntries then return errors that wrap ErrClock.
var ErrClock = errors.New("this node's clock differs from the database's")

const (
	maxSkew    = time.Hour
	clockEvery = time.Minute     // between checks of the database's clock
	clockJumps = 5 * time.Second // a jump of this node's clock that triggers a check
)

// A clock compares this node's clock with the database's.
type clock struct {
	every time.Duration // clockEvery

	mu       sync.Mutex
	right    time.Time // when both clocks were last found to agree
	database time.Time // the database's clock at that time

	seen  time.Time     // when this node last observed the database's clock
	doubt time.Duration // unconfirmed part of that observation
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

// check returns an error if the two clocks differ by more than maxSkew. database is a reading of
// the database's clock, and asked is this node's time before that reading.
func (c *clock) check(asked, database time.Time) error {
	now := time.Now()
	ahead, behind := asked.Round(0).Sub(database), database.Sub(now.Round(0))
	if by := max(ahead, behind); by > maxSkew {
		way := "ahead"
		if behind > 0 {
			way = "behind"
		}
		return fmt.Errorf("%w: it is %v %s, and at most %v is allowed; correct the clock", ErrClock, by.Round(time.Second), way, maxSkew)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.right, c.database = now, database
	return nil
}

// latest returns the latest time that may be stored as the current time: an hour after this node's
// clock or, if later, an hour after the database's clock, extrapolated from their last agreement. A
// later time would come from a wrong clock, and its rows would be in the future once the clock is
// corrected.
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

// observed records an observation of the database's clock that began at began.
func (c *clock) observed(began time.Time, doubt time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen, c.doubt = began, doubt
}

// recent reports whether this node's last observation of the database's clock is less than
// observeFor old.
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

// show records a result of Now.
func (c *clock) show(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shown = now
}

// ahead returns how far times derived from the latest result of Now may be ahead of the confirmed
// clock, because the database's clock may have been set back since that call.
func (c *clock) ahead(confirmed *confirmedClock) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(confirmed.doubt(), c.shown.Sub(confirmed.now()))
}

// checkClock checks the database's clock if a check is due.
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
	at, database time.Time // the same moment on both clocks; zero means unknown
}

// maxDrift is how far the two clocks may drift apart before the conversion changes. Until then,
// times that successive statements read keep their order.
const maxDrift = time.Second

// set records the current time of the confirmed clock. It ignores the time if it is up to maxDrift
// behind the time that the previous call predicts.
func (c *databaseClock) set(database time.Time) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if late := c.at.Add(database.Sub(c.database)).Sub(now); c.at.IsZero() || late > 0 || late < -maxDrift {
		c.at, c.database = now, database
	}
}

// here converts a time of the confirmed clock to this node's clock.
func (c *databaseClock) here(database time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at.Add(database.Sub(c.database))
}
