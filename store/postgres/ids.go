package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// eventOf selects the number of the event of the account $1 with the id $2, if the id is known.
const eventOf = `
	select event from (
		select k.event from storageapi.id_slots s
		cross join lateral (select event from storageapi.event_ids where slot = s.slot and account = $1 and id = $2 limit 1) k
		order by s.slot desc limit 1
	) last where event >= (select event from storageapi.marks where name = 'ids')`

// Ids are in slots of time, see the table event_ids. These are the states
// of the last slot and the one before:
//
//   - a slot has begun: ids are added to both, until the transactions have ended that were adding ids
//     when it began. They may not know of it;
//   - the one before is sealed: ids are added to the last one only. Before the next slot begins, the
//     transactions must have ended that were adding ids when it was sealed. They may not know of that.
//
// A slot is dropped once the mark of the ids is after all of its events. Without an age from which
// on ids are forgotten no slot begins.
//
// The number of the current slot is a sequence's: whoever publishes sees at once that it has changed. So
// a dump may have a later number than slots, and ids are refused where it is restored, until these have begun.
const (
	nextSlot   = `select setval(tableoid::regclass, $1) from storageapi.id_slot where last_value < $1`
	sealSlots  = `update storageapi.id_slots set sealed = slot < $1, below = case when slot < $1 then $2::bigint end, open = null where not sealed`
	removeSlot = `delete from storageapi.id_slots where slot = $1`
)

const (
	slotsPerAge = 4                              // that an age has at most: each is looked into by who publishes
	leastSlot   = int64(60_000) * perMillisecond // the least length of a slot
	turns       = 8                              // that slots take with one Purge, at most
)

// tendSlots takes the slots to their next states. Ids before that number are forgotten; 0: none ever is.
func (s *Store) tendSlots(ctx context.Context, before int64) error {
	for turn := range turns {
		more := false
		err := s.tidy(ctx, func(ctx context.Context, tx pgx.Tx) (err error) {
			more, err = s.turnSlots(ctx, tx, before, leastSlot)
			return err
		})
		if err != nil || !more {
			return err
		}
		if err := wait(ctx, time.Duration(turn)*time.Millisecond); err != nil { // what is being published ends soon
			return err
		}
	}
	return nil
}

// turnSlots takes the slots to their next state, unless it is too early, and drops the first if it is
// past. It reports whether there is more to do, at once or when transactions have ended.
func (s *Store) turnSlots(ctx context.Context, tx pgx.Tx, before, least int64) (more bool, err error) {
	if err := s.lockMark(ctx, tx, "ids"); err != nil {
		return false, err
	}
	var current, last, unsealed int
	var since, now int64
	var noted, over bool
	var missing []int
	var past *int
	ids := s.sql(`storageapi.event_ids`)
	if err := tx.QueryRow(ctx, s.sql(slotsNow), ids).Scan(&current, &last, &unsealed, &since, &now, &noted, &over, &missing, &past); err != nil {
		return false, err
	}
	batch := &pgx.Batch{}
	for _, no := range missing { // they are made early: in a dump that has the number of a slot is its table, too
		batch.Queue(s.sql(makeSlot(no)))
		batch.Queue(s.sql(attachSlot(no)))
	}
	seals := unsealed < last
	begins := !seals && before > 0 && now-since >= max((now-before)/slotsPerAge, least)
	switch {
	case last < current: // its transaction was undone, or is not in the dump that this is from
		batch.Queue(s.sql(beginSlots), ids, last+1, current, now)
	case seals && over:
		batch.Queue(s.sql(sealSlots), last, now)
	case begins && !noted:
		batch.Queue(s.sql(noteOpen), ids, last)
	case begins && over && len(missing) == 0:
		batch.Queue(s.sql(nextSlot), last+1)
		batch.Queue(s.sql(beginSlots), ids, last+1, last+1, now)
	case past != nil && len(missing) == 0:
		batch.Queue(s.sql(removeSlot), *past)
		batch.Queue(s.sql(dropPart(slotTable(*past))))
	}
	err = tx.SendBatch(ctx, batch).Close()
	return err == nil && (batch.Len() > 0 || (seals || begins) && !over), err
}
