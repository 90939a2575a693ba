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
func (s *Store) checkClock(ctx context.Context, db querier) error {
	asked := time.Now()
	if !s.clock.due(asked) {
		return nil
	}
	var now time.Time
	if err := db.QueryRow(ctx, `select clock_timestamp()`).Scan(&now); err != nil {
		return err
	}
	return s.clock.check(asked, now)
}
