package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// A partedTable is in parts by the numbers of events, which is by time. The marks say before which a
// part is past.
type partedTable struct {
	name, with string // and the parts' storage parameters
	order      string // by which the last event of the default part is found: no list takes an index by event + 0
	marks      []string
}

// parted are the tables in parts. All of one is in as many parts as it is old, of partsOfAge.
var parted = []partedTable{
	{"event_bodies", "", "event", []string{"payloads"}},
	{"attempt_log", "", "event + 0", []string{"attempts"}},
	{"failure_log", oftenVacuumed, "event + 0", []string{"attempts"}},
	{"event_log", "", "event", []string{"attempts", "ids"}},
}

const (
	partsOfAge = 8
	leastPart  = time.Minute // a maintainer purges once a minute
	mostPart   = 30 * 24 * time.Hour

	// So many parts are ready ahead, but no more than for a day, and two at least. What is missing
	// then goes to the default part.
	partsAhead, partsAheadFor = 6, 24 * time.Hour

	pauseOfParts = 10 * time.Second // after somebody kept parts from being dropped
)

// tidy runs a step that makes or drops parts of tables. It waits for nobody long: who reads, such as
// a backup, keeps parts from being dropped, and has it try again later.
func (s *Store) tidy(ctx context.Context, step func(context.Context, pgx.Tx) error) error {
	if until := s.partsHeld.Load(); until != nil && time.Now().Before(*until) {
		return nil
	}
	err := s.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockSoon); err != nil {
			return err
		}
		return step(ctx, tx)
	})
	if c := code(err); c == lockNotAvailable || c == deadlockDetected {
		until := time.Now().Add(pauseOfParts)
		s.partsHeld.Store(&until)
		return nil
	}
	return err
}

// tendParts drops the parts that are past, and makes those that will be needed. A part that is
// missed leaves what is published then to the default part, which is dropped like the others once
// all that it has is past.
func (s *Store) tendParts(ctx context.Context, since map[string]time.Time) error {
	for i := range parted {
		if err := s.tidy(ctx, func(ctx context.Context, tx pgx.Tx) error { return s.tend(ctx, tx, &parted[i], since) }); err != nil {
			return err
		}
	}
	return nil
}

// length returns how long a part is, of what is kept since the earliest of these times.
func (t *partedTable) length(since map[string]time.Time) time.Duration {
	length := leastPart
	for _, mark := range t.marks {
		if since[mark].IsZero() {
			return mostPart
		}
		length = max(length, time.Since(since[mark])/partsOfAge)
	}
	return min(length, mostPart)
}

// tend does for one table what tendParts does.
func (s *Store) tend(ctx context.Context, tx pgx.Tx, t *partedTable, since map[string]time.Time) error {
	var now, past, first, last, rest int64
	read := func() error {
		return tx.QueryRow(ctx, s.sql(partsNow(t)), t.name, t.marks).Scan(&now, &past, &first, &last, &rest)
	}
	if err := read(); err != nil {
		return err
	}
	length := t.length(since)
	ahead := now + numbers(max(min(partsAhead*length, partsAheadFor), 2*length))
	if first > past && last >= ahead && (rest == 0 || rest >= past) {
		return nil
	}
	if _, err := tx.Exec(ctx, s.sql(lockParts(t))); err != nil {
		return err
	}
	if err := read(); err != nil { // now that it stays so
		return err
	}
	var names []string
	if err := tx.QueryRow(ctx, s.sql(pastParts), t.name, past).Scan(&names); err != nil {
		return err
	}
	batch := &pgx.Batch{}
	for _, name := range names {
		batch.Queue(s.sql(dropPart(name)))
	}
	if rest > 0 && rest < past {
		batch.Queue(s.sql(dropPart(t.name + "_default")))
		batch.Queue(s.sql(makeRest(t)))
		if t.order != "event" {
			batch.Queue(s.sql(indexRest(t)))
		}
		rest = 0
	}
	for from := max(last, rest+1); from < ahead; {
		name, below := fmt.Sprint(t.name, "_", from), max(from, now)+numbers(length)
		batch.Queue(s.sql(makePart(t, name, from, below)))
		batch.Queue(s.sql(notePart), t.name, from, below, name)
		from = below
	}
	return tx.SendBatch(ctx, batch).Close()
}

// numbers returns how many numbers events can have within that time.
func numbers(d time.Duration) int64 { return d.Microseconds() * perMicrosecond }
