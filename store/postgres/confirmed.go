package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The confirmed clock is the database's clock without its jumps. Everything that expires or becomes
// due follows it, so that no data expires early when a clock is set ahead, or when a database is
// restored on a server with another clock.
//
// Nodes that deliver observe the database's clock every 10 s, and share the observation in the
// single row of the table clock. Normally at most clockJump passes between two observations. A
// longer time counts as a jump: either the clock was set ahead or no node ran, and the two cannot
// be distinguished. A jump is accepted after the nodes have observed the clock for another
// jumpHolds, and dropped if the clock is set back.
//
// At a jump the confirmed clock goes back to the last observation, and stands still until the next
// observation. Retries are late by the time between the two, so nodes must observe the clock often.
const (
	clockJump  = time.Hour
	jumpHolds  = 24 * time.Hour
	seenEvery  = 5 * time.Second  // between writes of the row
	observeFor = 10 * time.Second // how long a node's own observation counts as recent
)

// confirmedNow is the SQL expression for the confirmed time. It calls a function of the schema.
const confirmedNow = `(select storageapi.confirmed_clock())`

// A confirmedClock is the nodes' shared record of the database's clock: the latest observation and
// the jumps that are not confirmed yet.
type confirmedClock struct {
	seen          time.Time
	jumps, lasted []time.Duration // parallel, with one element per jump
}

// doubt returns how much of the elapsed time, up to the latest observation, unconfirmed clock jumps
// may have added.
func (c *confirmedClock) doubt() (sum time.Duration) {
	for _, by := range c.jumps {
		sum += by
	}
	return sum
}

// now returns the confirmed time of the latest observation.
func (c *confirmedClock) now() time.Time { return c.seen.Add(-c.doubt()) }

// observe records a time of the database's clock.
func (c *confirmedClock) observe(database time.Time) {
	elapsed := database.Sub(c.seen)
	c.seen = database
	for i := range c.lasted {
		c.lasted[i] += min(max(elapsed, 0), clockJump)
	}
	switch {
	case elapsed > clockJump:
		c.jumps, c.lasted = append(c.jumps, elapsed), append(c.lasted, 0)
	case elapsed < 0: // correct the latest jump first
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

// observeClock observes the database's clock, and returns its time and the confirmed clock.
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

// seenClock reads the latest stored observation, and then the database's clock.
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

// keepObserving observes the database's clock unless this node did so within observeFor.
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
