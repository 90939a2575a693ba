package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/webhooks"
)

// parted are the tables in parts, the marks before which a part of each is past, and the parts'
// storage parameters. All of one is in as many parts as it is old, of partsOfAge.
var parted = []struct {
	table, with string
	marks       []string
	of          func(*webhooks.Purge) []time.Time // when what the marks say was published
}{
	{"event_bodies", "", []string{"payloads"}, func(p *webhooks.Purge) []time.Time { return []time.Time{p.Payloads} }},
	{"recent_attempts", "", []string{"attempts"}, func(p *webhooks.Purge) []time.Time { return []time.Time{p.Attempts} }},
	{"recent_failures", oftenVacuumed, []string{"attempts"}, func(p *webhooks.Purge) []time.Time { return []time.Time{p.Attempts} }},
	{"recent_events", "", []string{"attempts", "ids"}, func(p *webhooks.Purge) []time.Time { return []time.Time{p.Attempts, p.EventIDs} }},
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

// A part is a row of partitions; its table has numbers from least and before below.
type part struct {
	name         string
	least, below int64
}

// tendParts drops the parts that are past, and makes those that will be needed. It waits for nobody
// long: who reads, such as a backup, keeps parts from being dropped, and has it try again later. A
// part that is missed leaves what is published then to the default part, which is dropped like the
// others once all that it has is past.
func (s *Store) tendParts(ctx context.Context, purge *webhooks.Purge) error {
	if until := s.partsHeld.Load(); until != nil && time.Now().Before(*until) {
		return nil
	}
	for i := range parted {
		t := &parted[i]
		length := partOf(t.of(purge))
		err := s.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
			return s.tend(ctx, tx, t.table, t.with, t.marks, length)
		})
		if c := code(err); c == lockNotAvailable || c == deadlockDetected {
			until := time.Now().Add(pauseOfParts)
			s.partsHeld.Store(&until)
			return nil
		}
		if err != nil {
			return err
		}
	}
	return s.dropBefore(ctx)
}

// partOf returns how long a part is, of what is kept since the earliest of these times.
func partOf(since []time.Time) time.Duration {
	length := leastPart
	for _, t := range since {
		if t.IsZero() {
			return mostPart
		}
		length = max(length, time.Since(t)/partsOfAge)
	}
	return min(length, mostPart)
}

// tend does for one table what tendParts does.
func (s *Store) tend(ctx context.Context, tx pgx.Tx, table, with string, marks []string, length time.Duration) error {
	if _, err := tx.Exec(ctx, s.sql(lockSoon)); err != nil {
		return err
	}
	var now, past, first, last int64
	err := tx.QueryRow(ctx, s.sql(partsOf), table, marks).Scan(&now, &past, &first, &last)
	if err != nil {
		return err
	}
	rest, err := s.lastOfRest(ctx, tx, table)
	if err != nil {
		return err
	}
	ahead := now + numbers(max(min(partsAhead*length, partsAheadFor), 2*length))
	if first > past && last >= ahead && (rest == 0 || rest >= past) {
		return nil
	}
	if _, err := tx.Exec(ctx, s.sql(lockParts(table))); err != nil {
		return err
	}
	if rest, err = s.lastOfRest(ctx, tx, table); err != nil { // now that it stays so
		return err
	}
	rows, err := tx.Query(ctx, s.sql(pastParts), table, past)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	batch := &pgx.Batch{}
	for _, name := range names {
		batch.Queue(s.sql(dropPart(name)))
	}
	if rest > 0 && rest < past {
		batch.Queue(s.sql(dropPart(table + "_default")))
		batch.Queue(s.sql(makeRest(table, with)))
		if indexesRest(table) {
			batch.Queue(s.sql(indexRest(table)))
		}
		rest = 0
	}
	for from := max(last, rest+1); from < ahead; {
		p := part{least: from, below: max(from, now) + numbers(length), name: fmt.Sprint(table, "_", from)}
		batch.Queue(s.sql(makePart(table, with, p)))
		batch.Queue(s.sql(notePart), table, p.least, p.below, p.name)
		from = p.below
	}
	return tx.SendBatch(ctx, batch).Close()
}

// numbers returns how many numbers events can have within that time.
func numbers(d time.Duration) int64 { return d.Microseconds() * perMicrosecond }

// lastOfRest returns the last number in the default part of a table, 0 if it is empty.
func (s *Store) lastOfRest(ctx context.Context, tx pgx.Tx, table string) (last int64, err error) {
	err = tx.QueryRow(ctx, s.sql(lastOfRest(table))).Scan(&last)
	return last, err
}

// dropBefore drops what was there before there were parts, once it is empty and older nodes have
// had time to end.
func (s *Store) dropBefore(ctx context.Context) error {
	err := s.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		var may bool
		err := tx.QueryRow(ctx, s.sql(mayDropBefore), s.sql(`storageapi.events`)).Scan(&may)
		if err == nil && may {
			_, err = tx.Exec(ctx, s.sql(dropBefore))
		}
		return err
	})
	if code(err) == lockNotAvailable {
		return nil
	}
	return err
}
