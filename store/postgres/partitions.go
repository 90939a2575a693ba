package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A partedTable is a table that is partitioned by event number, and so by time. Its marks are the
// lowest event numbers that are not purged. A part (partition) is past, and can be dropped, once it
// ends before all marks of the table. The length of a part is the retention divided by perAge.
type partedTable struct {
	name, with string // with are the parts' storage parameters
	marks      []string
	perAge     time.Duration
}

var parted = []partedTable{
	{"event_bodies", "", []string{"payloads"}, 8},
	{"attempt_log", "", []string{"attempts"}, 8},
	{"failure_log", oftenVacuumed, []string{"attempts"}, 8},
	{"event_log", "", []string{"attempts", "ids"}, 8},
	{eventIDs, "", []string{"ids"}, 3}, // publications read all parts
}

// eventIDs is partitioned by lists. A publication adds to the last part that has begun, even after
// the part's end.
const eventIDs = "event_ids"

const (
	leastPart = 15 * time.Minute
	mostPart  = 30 * 24 * time.Hour

	// Parts are made for partsAhead times their length ahead, but for at most mostAhead, and for at
	// least twice their length and leastAhead. Without a part for the current time the event clock
	// stops, see enqueue.sql. Imported events may be an hour ahead.
	partsAhead, mostAhead, leastAhead = 8, 7 * 24 * time.Hour, 90 * time.Minute

	// spareParts is how far ahead publishing nodes make parts if no node purges.
	spareParts = 2 * time.Hour

	// idsAhead is the minimum time from making a part of event_ids to its start. By its start, all
	// publications must agree on the part.
	idsAhead     = time.Minute
	maxDetach    = time.Second      // maximum wait for transactions when detaching a part
	pauseOfParts = 10 * time.Second // pause after transactions prevented dropping a part
	partsOverdue = time.Hour        // a part that still exists so long after it is past is an error
)

// length returns the length of a part, or 0 for a single part. since has the start of the retention
// for each mark.
func (t *partedTable) length(since map[string]time.Time) time.Duration {
	length := leastPart
	for _, mark := range t.marks {
		switch {
		case !since[mark].IsZero():
			length = max(length, time.Since(since[mark])/t.perAge)
		case t.name == eventIDs:
			return 0
		default:
			return mostPart
		}
	}
	if t.name == eventIDs {
		return length
	}
	return min(length, mostPart)
}

// ahead returns how far ahead parts of this length are made.
func (t *partedTable) ahead(length time.Duration) time.Duration {
	if t.name == eventIDs {
		return length
	}
	return max(min(partsAhead*length, mostAhead), 2*length, leastAhead)
}

// makeParts makes the parts that will be needed.
func (s *Store) makeParts(ctx context.Context, since map[string]time.Time) error {
	for i := range parted {
		t := &parted[i]
		length := t.length(since)
		if length == 0 {
			continue
		}
		if _, err := s.makePartsOf(ctx, t, length, t.ahead(length)); err != nil {
			return err
		}
	}
	return nil
}

// makeSpareParts makes parts if they are about to run out, and sets the time of the next check.
func (s *Store) makeSpareParts(ctx context.Context) error {
	ready := mostPart
	for i := range parted {
		if parted[i].name == eventIDs {
			continue
		}
		ends, err := s.makePartsOf(ctx, &parted[i], spareParts, spareParts)
		if err != nil {
			return err
		}
		ready = min(ready, ends)
	}
	s.sparePartsAt.Store(time.Now().Add(max(ready-spareParts, time.Minute)).UnixNano())
	return nil
}

// checkParts calls makeSpareParts in the background when a check is due.
func (s *Store) checkParts() {
	now := time.Now()
	if at := s.sparePartsAt.Load(); now.UnixNano() >= at && s.sparePartsAt.CompareAndSwap(at, now.Add(time.Minute).UnixNano()) {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), defaultTimeout)
			defer cancel()
			// The next check tries again. The event clock stops if parts run out, and Purge returns
			// the error of its own attempt.
			_ = s.makeSpareParts(ctx)
		}()
	}
}

// makePartsOf makes parts of the given length until the table has parts for the duration ahead, and
// returns how far ahead its parts reach. Publications and this step do not wait for each other,
// because a part is created as a separate table and then attached.
func (s *Store) makePartsOf(ctx context.Context, t *partedTable, length, ahead time.Duration) (ready time.Duration, err error) {
	var now, last int64
	var name string
	read := func(db querier) error {
		return db.QueryRow(ctx, s.sql(lastPart), t.name, s.clock.latest()).Scan(&now, &last, &name)
	}
	isReady := func() bool { return last >= now+numbers(ahead) }
	err = s.read(ctx, func(_ context.Context, conn *pgxpool.Conn) error { return read(conn) })
	if err == nil && !isReady() {
		err = s.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, set(lockBriefly)); err != nil {
				return err
			}
			if err := s.lockMark(ctx, tx, "parts"); err != nil {
				return err
			}
			if err := read(tx); err != nil { // again, now that the result cannot change
				return err
			}
			batch := &pgx.Batch{}
			if least := now + numbers(idsAhead); t.name == eventIDs && last < least {
				last = least
				batch.Queue(s.sql(lengthenPart), t.name, name, last)
			}
			for !isReady() {
				name, below := fmt.Sprint(t.name, "_", last), max(last, now)+numbers(length)
				batch.Queue(s.sql(makePart(t, name)))
				batch.Queue(s.sql(attachPart(t, name, last, below)))
				batch.Queue(s.sql(notePart), t.name, last, below, name)
				last = below
			}
			batch.Queue(s.sql(moveEnd), eventIDs)
			return tx.SendBatch(ctx, batch).Close()
		})
		if isHeld(err) { // a later try is early enough
			if err = s.read(ctx, func(_ context.Context, conn *pgxpool.Conn) error { return read(conn) }); err == nil && last < now+numbers(ahead/2) {
				err = errPartHeld
			}
		}
	}
	if err != nil {
		return 0, fmt.Errorf("creating partitions of table %s: %w", t.name, err)
	}
	return time.Duration((last-now)/perMicrosecond) * time.Microsecond, nil
}

// isHeld reports whether a step on parts failed because other transactions blocked it or another
// node had already done it.
func isHeld(err error) bool {
	switch code(err) {
	case lockNotAvailable, deadlockDetected, objectNotInPrerequisiteState, undefinedTable:
		return true
	}
	return errors.Is(err, errPartHeld)
}

// errPartHeld means that open transactions block a step on a part.
var errPartHeld = errors.New("open transactions hold it")

// A pastPart is a part that ends before all marks of its table.
type pastPart struct {
	kind, name string
	state      partState
	overdue    bool
}

type partState int

const (
	partAttached partState = iota
	partDetaching
	partDetached
	partDropped
)

// dropParts drops the past parts. It first detaches each part, which does not block publications.
// Detaching waits up to a second for transactions that may read the part, such as a backup. If that
// is too short, the next Purge tries again. Such a wait becomes an error once the part has been
// past for an hour.
func (s *Store) dropParts(ctx context.Context) error {
	if until := s.partsHeld.Load(); until != nil && time.Now().Before(*until) {
		return nil
	}
	for i := range parted {
		var past []pastPart
		err := s.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) (err error) {
			past, err = rowsOf(ctx, conn, scanPastPart, s.sql(pastParts), parted[i].name, parted[i].marks, s.sql(`storageapi.`), numbers(partsOverdue))
			return err
		})
		if err != nil {
			return err
		}
		for _, part := range past {
			err := s.dropPart(ctx, part)
			if isHeld(err) {
				until := time.Now().Add(pauseOfParts)
				s.partsHeld.Store(&until)
				if part.overdue {
					return fmt.Errorf("partition %s of table %s could not be dropped for an hour: %w; look for an open transaction in pg_stat_activity", part.name, part.kind, err)
				}
				return nil
			}
			if err != nil {
				return fmt.Errorf("dropping partition %s of table %s: %w", part.name, part.kind, err)
			}
		}
	}
	return nil
}

func scanPastPart(row pgx.Row) (p pastPart, err error) {
	err = row.Scan(&p.kind, &p.name, &p.state, &p.overdue)
	return p, err
}

// dropPart detaches and drops a part, continuing from its current state.
func (s *Store) dropPart(ctx context.Context, part pastPart) error {
	if part.state < partDetached {
		held := false
		err := s.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
			short, cancel := context.WithTimeout(ctx, maxDetach)
			defer cancel()
			// A timeout cancels the statement and closes the connection.
			_, err := conn.Exec(short, s.sql(detachPart(part)))
			if held = err != nil && short.Err() != nil && ctx.Err() == nil; held {
				err = nil
			}
			return err
		})
		if held {
			err = errPartHeld
		}
		if err != nil {
			return err
		}
	}
	return s.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		batch := &pgx.Batch{}
		batch.Queue(set(lockBriefly))
		batch.Queue(s.sql(forgetPart), part.kind, part.name)
		if part.state < partDropped {
			batch.Queue(s.sql(dropTable(part.name)))
		}
		return tx.SendBatch(ctx, batch).Close()
	})
}

// numbers returns how many event numbers there are in a duration.
func numbers(d time.Duration) int64 { return d.Microseconds() * perMicrosecond }

// checkRights returns an error if the role may not make and drop parts.
func checkRights(ctx context.Context, pool *pgxpool.Pool, o *options) error {
	var role string
	var creates bool
	var owner *string
	if err := pool.QueryRow(ctx, rights, o.schema).Scan(&role, &creates, &owner); err != nil {
		return err
	}
	role = pgx.Identifier{role}.Sanitize()
	switch {
	case !creates:
		return fmt.Errorf("role %s cannot create tables in schema %s, which purging requires: grant create on schema %[2]s to %[1]s", role, o.names.quoted())
	case owner != nil:
		return fmt.Errorf("role %s does not own the tables in schema %s, which purging requires: grant %s to %[1]s", role, o.names.quoted(), pgx.Identifier{*owner}.Sanitize())
	}
	return nil
}
