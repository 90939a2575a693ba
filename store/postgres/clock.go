package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrClock is wrapped by the errors of [New], [Open] and ClaimDeliveries if this node's
// clock differs from the database's by more than an hour. Receivers would reject its
// signatures, and keys would expire too late or too early.
var ErrClock = errors.New("this node's clock differs from the database's")

const (
	maxSkew    = time.Hour
	clockEvery = time.Minute     // between checks of the database's clock
	clockJumps = 5 * time.Second // jump of this node's clock that makes it check at once
)

// A clock knows when this node's clock was last found to be right.
type clock struct {
	every time.Duration // clockEvery

	mu    sync.Mutex
	right time.Time
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
	c.right = now
	return nil
}

// checkClock checks the database's clock if that is due.
func (s *Store) checkClock(ctx context.Context) error {
	asked := time.Now()
	if !s.clock.due(asked) {
		return nil
	}
	now, err := s.Now(ctx)
	if err != nil {
		return err
	}
	return s.clock.check(asked, now)
}

// A databaseClock tells when it is here what the database's clock shows.
type databaseClock struct {
	mu           sync.Mutex
	at, database time.Time // the same moment; zero: not known
}

// maxDrift is by how much the clocks may differ from what is known of them. What is read with one
// statement and what with the next keep their order meanwhile.
const maxDrift = time.Second

// set notes what the database's clock shows now, unless that is as expected, or later only.
func (c *databaseClock) set(database time.Time) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if late := c.at.Add(database.Sub(c.database)).Sub(now); c.at.IsZero() || late > 0 || late < -maxDrift {
		c.at, c.database = now, database
	}
}

// here returns when the database's clock shows that time.
func (c *databaseClock) here(database time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at.Add(database.Sub(c.database))
}
