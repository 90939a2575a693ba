package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The confirmed clock is the database's clock without its jumps. What ages goes by it: a clock that is
// set ahead, or a database that was restored on a server with another clock, must not end what is kept.
//
// Nodes observe the database's clock at least once a minute, and share what they saw in the one row
// of the table clock. Between two observations at most clockJump passes. More than that is a jump: of the clock,
// or a time in which no node ran, which look alike. It is believed once the nodes have observed the
// clock for jumpHolds since, and forgotten if the clock is set back.
const (
	clockJump  = time.Hour
	jumpHolds  = 24 * time.Hour
	seenEvery  = 30 * time.Second // between writes of the row
	observeFor = time.Minute      // an observation of this node is recent for so long
)

// confirmedNow is the confirmed clock in statements: see the function in the schema.
const confirmedNow = `(select storageapi.confirmed_clock())`

// A confirmedClock is what the nodes have observed.
type confirmedClock struct {
	seen          time.Time
	jumps, lasted []time.Duration // element by element
}

// doubt returns how much of the time up to the latest observation is not confirmed.
func (c *confirmedClock) doubt() (sum time.Duration) {
	for _, by := range c.jumps {
		sum += by
	}
	return sum
}

// now returns the confirmed time of the latest observation.
func (c *confirmedClock) now() time.Time { return c.seen.Add(-c.doubt()) }

// observe notes what the database's clock shows.
func (c *confirmedClock) observe(database time.Time) {
	elapsed := database.Sub(c.seen)
	c.seen = database
	for i := range c.lasted {
		c.lasted[i] += min(max(elapsed, 0), clockJump)
	}
	switch {
	case elapsed > clockJump:
		c.jumps, c.lasted = append(c.jumps, elapsed), append(c.lasted, 0)
	case elapsed < 0: // the latest jump is corrected first
		for i := len(c.jumps) - 1; i >= 0 && elapsed < 0; i-- {
			by := min(c.jumps[i], -elapsed)
			c.jumps[i] -= by
			elapsed += by
		}
	}
	jumps, lasted := c.jumps, c.lasted
	c.jumps, c.lasted = nil, nil
	for i, by := range jumps {
		if by > clockJump && lasted[i] < jumpHolds {
			c.jumps, c.lasted = append(c.jumps, by), append(c.lasted, lasted[i])
		}
	}
}

// observeClock observes the database's clock, and returns what it shows and what is confirmed of that.
func (s *Store) observeClock(ctx context.Context) (database time.Time, c confirmedClock, err error) {
	began := time.Now()
	var elapsed time.Duration
	err = s.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		database, c, err = s.seenClock(ctx, conn, "")
		elapsed = database.Sub(c.seen)
		c.observe(database)
		return err
	})
	if err == nil && (elapsed < -maxDrift || elapsed >= seenEvery) {
		err = s.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
			if database, c, err = s.seenClock(ctx, tx, " for update"); err != nil {
				return err
			}
			c.observe(database)
			_, err := tx.Exec(ctx, s.sql(`update storageapi.clock set seen = $1, doubt = $2 * interval '1 microsecond', jumps = $3, lasted = $4 where one`),
				c.seen, c.doubt().Microseconds(), microseconds(c.jumps), microseconds(c.lasted))
			return err
		})
	}
	if err == nil {
		s.clock.observed(began, c.doubt())
	}
	return database, c, err
}

// seenClock reads the latest observation, and then the database's clock.
func (s *Store) seenClock(ctx context.Context, db interface {
	SendBatch(context.Context, *pgx.Batch) pgx.BatchResults
}, locked string) (database time.Time, c confirmedClock, err error) {
	var jumps, lasted []int64
	batch := &pgx.Batch{}
	batch.Queue(s.sql(`select seen, jumps, lasted from storageapi.clock where one` + locked)).QueryRow(func(row pgx.Row) error { return row.Scan(&c.seen, &jumps, &lasted) })
	batch.Queue(`select clock_timestamp()`).QueryRow(func(row pgx.Row) error { return row.Scan(&database) })
	if err := db.SendBatch(ctx, batch).Close(); err != nil {
		return database, c, err
	}
	c.jumps, c.lasted = durations(jumps), durations(lasted)
	return database, c, nil
}

// keepObserving observes the database's clock if this node has not done so for a minute.
func (s *Store) keepObserving(ctx context.Context) error {
	if s.clock.recent() {
		return nil
	}
	_, _, err := s.observeClock(ctx)
	return err
}

func microseconds(list []time.Duration) []int64 {
	return column(list, func(d time.Duration) int64 { return d.Microseconds() })
}

func durations(list []int64) []time.Duration {
	return column(list, func(n int64) time.Duration { return time.Duration(n) * time.Microsecond })
}
