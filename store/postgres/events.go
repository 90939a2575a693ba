package postgres

import (
	"cmp"
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/webhooks"
)

// An event's number is the time of publishing, in microseconds since epoch, times
// perMicrosecond, plus a counter within the microsecond. It lasts until 2091.
const perMicrosecond = 4096

var epoch = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// numberAt returns the least number of an event that was published at that time or
// later; what is finer than a millisecond is dropped.
func numberAt(t time.Time) int64 {
	switch ms := utc(t).UnixMilli() - epoch.UnixMilli(); {
	case ms <= 0:
		return 0
	case ms >= math.MaxInt64/perMicrosecond/1000:
		return math.MaxInt64
	default:
		return ms * 1000 * perMicrosecond
	}
}

// publishedAt returns when an event was published, by its number.
func publishedAt(number int64) time.Time {
	return epoch.Add(time.Duration(number/perMicrosecond) * time.Microsecond).Truncate(time.Millisecond)
}

// tick is the microsecond of the events stored now: later than those of all events stored
// before the statement began, even if the clock was set back. The sequence event_clock has
// the latest one and shows whether the clock was set back. Only then are the events
// themselves read, because many of the newest are not committed yet. (Two statements at
// once may leave the earlier of their microseconds in the sequence: a clock that is set
// back at that moment, by less than their difference, goes unnoticed.)
const tick = `
	tick as materialized (
		select setval(clock,
			greatest(now, mark + 1, case when mark > now + 1000 then (select event / 4096 + 1 from storageapi.events order by event desc limit 1) end)) as at
		from (
			select (extract(epoch from clock_timestamp() - '2020-01-01 00:00:00Z'::timestamptz) * 1000000)::bigint as now,
				last_value as mark, tableoid::regclass as clock from storageapi.event_clock
		) clock
	)`

// nextNumber is the number of an event of that tick.
const nextNumber = `tick.at * 4096 + nextval((select tableoid::regclass from storageapi.event_numbers))`

// enqueue stores events and their pending deliveries in one statement. It returns the
// places of the new events, and how many deliveries each has. No two events have the same
// account and id (deduplication key).
//
// Webhooks are read as of the beginning of the statement, without locks: a delivery to a
// webhook that is deleted at the same time has no effect.
const enqueue = `
	with ` + tick + `, input as materialized (
		select i.*, ` + nextNumber + ` as event, w.owed, w.skipped
		from {input} as i (account, id, type, at, body, shard, trace, hook, place)
		cross join tick
		cross join lateral (
			select array_agg(no) filter (where active) as owed, array_agg(no) filter (where not active) as skipped
			from storageapi.webhooks where account = i.account and events @> array[i.type] and (i.hook = '' or id = i.hook)) w
		where not exists (select from storageapi.erasures where account = i.account)
	), added as (
		insert into storageapi.events (event, account, id, type, at, matched, body, trace)
		select event, account, id, type, at, coalesce(cardinality(owed), 0), case when owed is not null or skipped is not null then body end, nullif(trace, '')
		from input
		on conflict (account, id) where known do nothing
		returning event, matched
	), new as materialized (
		select place, event, shard, matched, owed, skipped from added join input using (event)
	), queued as (
		insert into storageapi.queue (webhook, event, shard, kind, parked, due, attempts, before)
		select unnest(owed), event, shard, ` + newest + `, false, clock_timestamp(), 0, 0 from new
	), logged as (
		insert into storageapi.attempts (event, webhook, number, state, took, status, class, error, response)
		select event, unnest(skipped), 0, 3, 0, 0, '', '', '' from new
	)
	select place::integer - 1, matched from new`

// enqueueOne stores an event for the webhook $7, or if that is empty for all subscribed
// webhooks; enqueueMany stores several events for all subscribed webhooks.
var (
	enqueueOne = strings.Replace(enqueue, "{input}", `(
		values ($1::text, $2::text, $3::text, $4::timestamptz, $5::bytea, $6::smallint, $8::text, $7::text, 1))`, 1)
	enqueueMany = strings.Replace(enqueue, "{input}", `(
		select account, id, type, at, body, shard, trace, '', place
		from unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[], $5::bytea[], $6::smallint[], $7::text[])
			with ordinality as u (account, id, type, at, body, shard, trace, place))`, 1)
)

// enqueue stores an event for the webhook only, or if that is empty for all subscribed
// webhooks. It returns how many deliveries it had at first, and whether it is new.
func (s *Store) enqueue(ctx context.Context, db querier, encoded *webhooks.EncodedEvent, only string) (deliveries int, isNew bool, err error) {
	for try := 1; ; try++ {
		var place int
		err := db.QueryRow(ctx, s.sql(enqueueOne), encoded.Account, encoded.ID, string(encoded.Type), utc(encoded.Timestamp),
			storedBody(encoded), shardOf(encoded.Account), only, encoded.TraceContext).Scan(&place, &deliveries)
		if !errors.Is(err, pgx.ErrNoRows) {
			return deliveries, true, err
		}
		err = db.QueryRow(ctx, s.sql(`select matched from storageapi.events where account = $1 and id = $2 and known`),
			encoded.Account, encoded.ID).Scan(&deliveries)
		if errors.Is(err, pgx.ErrNoRows) {
			if is, failed := s.isErasing(ctx, db, encoded.Account); is || failed != nil {
				return 0, false, cmp.Or(failed, auth.ErrErasing)
			}
		}
		if !errors.Is(err, pgx.ErrNoRows) || try == maxTries { // otherwise it was purged in between
			return deliveries, false, err
		}
	}
}

// storedBody returns the stored form of a body, which is not null.
func storedBody(encoded *webhooks.EncodedEvent) []byte {
	if encoded.Body == nil {
		return []byte{}
	}
	return encoded.Body
}

// numberAfter returns the least number of an event that was published at that time or
// later.
func numberAfter(t time.Time) int64 {
	if from := utc(t); !from.Equal(t) {
		t = from.Add(time.Millisecond)
	}
	return numberAt(t)
}

// none returns ErrNotFound for the error of no rows.
func none(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return webhooks.ErrNotFound
	}
	return err
}
