package postgres

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// eventOf selects the number of the event of the account $1 with the id $2, if the id is known.
	eventOf = `
		select event from (
			select event from (
				select k.event, s.slot from storageapi.id_slots s
				cross join lateral (select event from storageapi.event_ids where slot = s.slot and account = $1 and id = $2 limit 1) k
				union all
				select event, 0 from storageapi.event_log where layout = 0 and account = $1 and id = $2 and known
			) found order by slot desc limit 1
		) last where event >= (select event from storageapi.marks where name = 'ids')`

	// eraseIDs removes ids of the account $1, of which nothing is left otherwise.
	eraseIDs = `
		with old as materialized (
			select i.slot, i.id from storageapi.id_slots s
			cross join lateral (select slot, id from storageapi.event_ids where slot = s.slot and account = $1 limit $2) i limit $2
		), gone as (
			delete from storageapi.event_ids
			where slot = any(array(select slot from old)) and account = $1 and id = any(array(select id from old)) returning 1
		) select (select count(*) from gone), (select count(*) from old)`
)

// Ids are in slots of time, see the migration that made the table event_ids. These are the states
// of the last slot and the one before:
//
//   - a slot has begun: ids are added to both, until the transactions have ended that were adding ids
//     when it began. They may not know of it;
//   - the one before is sealed: ids are added to the last one only. Before the next slot begins, the
//     transactions must have ended that were adding ids when it was sealed. They may not know of that.
//
// A slot is dropped once the mark of the ids is after all of its events. Without an age from which
// on ids are forgotten no slot begins.
const (
	idSlots     = `select slot, since, sealed, coalesce(below, 0), open from storageapi.id_slots order by slot`
	currentSlot = `select last_value::integer from storageapi.id_slot`
	nextSlot    = `select setval(tableoid::regclass, $1) from storageapi.id_slot where last_value < $1`
	beginSlot   = `insert into storageapi.id_slots (slot, since, open) values ($1, $2, $3)`
	setOpen     = `update storageapi.id_slots set open = $2 where slot = $1`
	sealSlot    = `update storageapi.id_slots set sealed = true, below = $2, open = null where slot = $1`
	removeSlot  = `delete from storageapi.id_slots where slot = $1`

	// slotsThere tells the number of the next slot, and whether the tables of the current and the
	// next one are there, whose names begin with $1.
	slotsThere = `
		select (last_value + 1)::integer, to_regclass($1::text || last_value) is not null, to_regclass($1::text || (last_value + 1)) is not null
		from storageapi.id_slot`

	// pastSlot selects the first slot if all its events are before the mark. To the last two ids
	// may be added.
	pastSlot = `
		select slot from storageapi.id_slots
		where sealed and below <= (select event from storageapi.marks where name = 'ids') and slot < (select max(slot) - 1 from storageapi.id_slots)
			and slot = (select min(slot) from storageapi.id_slots)`
)

const (
	slotsPerAge = 4                              // that an age has at most: each is looked into by who publishes
	leastSlot   = int64(60_000) * perMillisecond // the least length of a slot
	turns       = 5                              // tries of a call to go on
)

// An idSlot is a slot of ids.
type idSlot struct {
	no           int
	since, below int64
	sealed       bool
	open         []string
}

// tendSlots begins, seals and drops slots of ids, which are forgotten once they are as old as that;
// never, if it is the zero time. It is called now and then.
func (s *Store) tendSlots(ctx context.Context, ids time.Time) error {
	pause := time.Millisecond
	for range turns {
		more, err := s.turnSlots(ctx, numberAfter(ids), leastSlot)
		if err != nil {
			return err
		}
		if !more {
			break
		}
		select {
		case <-time.After(pause): // what is being published ends soon
		case <-ctx.Done():
			return ctx.Err()
		}
		pause *= 2
	}
	return s.dropSlots(ctx)
}

// turnSlots takes the slots to their next state, unless it is too early. It reports whether
// there is more to do, at once or when transactions have ended.
func (s *Store) turnSlots(ctx context.Context, before, least int64) (more bool, err error) {
	next, err := s.makeSlots(ctx)
	if err != nil {
		return false, unlessLocked(err)
	}
	err = s.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		more = false
		if err := s.lockMark(ctx, tx, "ids"); err != nil {
			return err
		}
		list, current, now, err := s.readSlots(ctx, tx)
		if err != nil {
			return err
		}
		last := list[len(list)-1]
		unsealed := slices.IndexFunc(list, func(x idSlot) bool { return !x.sealed })
		switch {
		case last.no < current: // its transaction was undone, or is not in the dump that this is from
			more = true
			return s.beginSlots(ctx, tx, last.no+1, current, now)
		case list[unsealed].no < last.no:
			over, err := s.areOver(ctx, tx, last.open)
			if more = true; err != nil || !over {
				return err
			}
			if _, err := tx.Exec(ctx, s.sql(sealSlot), list[unsealed].no, now); err != nil {
				return err
			}
			_, err = tx.Exec(ctx, s.sql(setOpen), last.no, nil)
			return err
		case before == 0 || next != current+1 || now-last.since < max((now-before)/slotsPerAge, least):
			return nil
		case last.open == nil:
			more = true
			open, err := s.addingIDs(ctx, tx)
			if err == nil {
				_, err = tx.Exec(ctx, s.sql(setOpen), last.no, open)
			}
			return err
		}
		over, err := s.areOver(ctx, tx, last.open)
		if more = true; err != nil || !over {
			return err
		}
		if _, err := tx.Exec(ctx, s.sql(nextSlot), next); err != nil {
			return err
		}
		return s.beginSlots(ctx, tx, next, next, now)
	})
	return more, err
}

// readSlots returns the slots, in their order, the last value of their sequence and the number
// of an event that were published now.
func (s *Store) readSlots(ctx context.Context, tx pgx.Tx) (list []idSlot, current int, now int64, err error) {
	rows, err := tx.Query(ctx, s.sql(idSlots))
	if err != nil {
		return nil, 0, 0, err
	}
	list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (x idSlot, err error) {
		return x, row.Scan(&x.no, &x.since, &x.sealed, &x.below, &x.open)
	})
	if err != nil {
		return nil, 0, 0, err
	}
	if err := tx.QueryRow(ctx, s.sql(currentSlot)).Scan(&current); err != nil {
		return nil, 0, 0, err
	}
	return list, current, now, tx.QueryRow(ctx, s.sql(eventClock)).Scan(&now)
}

// beginSlots notes slots that ids are added to already.
func (s *Store) beginSlots(ctx context.Context, tx pgx.Tx, first, last int, now int64) error {
	open, err := s.addingIDs(ctx, tx)
	for no := first; no <= last && err == nil; no++ {
		_, err = tx.Exec(ctx, s.sql(beginSlot), no, now, open)
	}
	return err
}

// addingIDs returns the transactions that are adding ids.
func (s *Store) addingIDs(ctx context.Context, tx pgx.Tx) ([]string, error) {
	rows, err := tx.Query(ctx, addingIDs, s.sql(`storageapi.event_ids`))
	if err != nil {
		return nil, err
	}
	open, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return append([]string{}, open...), err // not null
}

// areOver reports whether transactions have ended that were adding ids.
func (s *Store) areOver(ctx context.Context, tx pgx.Tx, open []string) (over bool, err error) {
	err = tx.QueryRow(ctx, areOver, s.sql(`storageapi.event_ids`), open).Scan(&over)
	return over, err
}

// makeSlots makes the tables of the current slot and the next one, and returns the next one. It is
// early: in a dump that has the number of a slot is its table, too.
func (s *Store) makeSlots(ctx context.Context) (next int, err error) {
	var there, nextThere bool
	err = s.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, s.sql(slotsThere), s.sql(`storageapi.event_ids_`)).Scan(&next, &there, &nextThere)
	})
	if err == nil && !there {
		err = s.makeSlot(ctx, next-1)
	}
	if err == nil && !nextThere {
		err = s.makeSlot(ctx, next)
	}
	return next, err
}

// makeSlot makes the table of a slot, unless another node does so.
func (s *Store) makeSlot(ctx context.Context, no int) error {
	err := s.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		batch := &pgx.Batch{}
		batch.Queue(s.sql(lockSoon))
		batch.Queue(s.sql(makeSlot(no)))
		batch.Queue(s.sql(attachSlot(no)))
		return tx.SendBatch(ctx, batch).Close()
	})
	if code(err) == duplicateTable {
		return nil
	}
	return err
}

// dropSlots drops the slots that are past, unless somebody reads them.
func (s *Store) dropSlots(ctx context.Context) error {
	for {
		more := false
		err := s.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
			more = false
			if err := s.lockMark(ctx, tx, "ids"); err != nil {
				return err
			}
			var no int
			switch err := tx.QueryRow(ctx, s.sql(pastSlot)).Scan(&no); {
			case errors.Is(err, pgx.ErrNoRows):
				return nil
			case err != nil:
				return err
			}
			more = true
			batch := &pgx.Batch{}
			batch.Queue(s.sql(lockSoon))
			batch.Queue(s.sql(removeSlot), no)
			batch.Queue(s.sql(dropSlot(no)))
			return tx.SendBatch(ctx, batch).Close()
		})
		if err != nil || !more {
			return unlessLocked(err)
		}
	}
}

// unlessLocked returns the error, unless it is that a lock was not to be had soon.
func unlessLocked(err error) error {
	if c := code(err); c == lockNotAvailable || c == deadlockDetected {
		return nil
	}
	return err
}
