package postgres

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/webhooks"
)

// An event's number is when it was published, in microseconds since epoch, times
// perMicrosecond, and something to tell apart those of one microsecond. It lasts
// until 2091.
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

// tick is the microsecond of an event that is stored now: later than those of all
// that were when the statement began, also if the clock was set back. The sequence
// event_clock tells of that: it holds the latest of them. Only then are the events
// themselves looked at, since the newest are many that are not committed yet. (Two
// that publish at once may leave the earlier of their microseconds in the sequence:
// a clock set back by less than they are apart, at that very moment, goes unseen.)
const tick = `
	tick as materialized (
		select greatest(now, mark + 1, case when mark > now + 1000 then (select event / 4096 + 1 from storageapi.events order by event desc limit 1) end) as at
		from (
			select (extract(epoch from clock_timestamp() - '2020-01-01 00:00:00Z'::timestamptz) * 1000000)::bigint as now,
				(select last_value from storageapi.event_clock) as mark
		) clock
	)`

// nextNumber is the number of an event of that tick.
const nextNumber = `setval('storageapi.event_clock', tick.at) * 4096 + nextval('storageapi.event_numbers')`

// enqueue stores an event with what is owed of it, in one statement. It returns no
// row if the account has an event of that id.
//
// Webhooks are read as of the beginning of the statement, and not locked: what is
// owed to one that is deleted meanwhile belongs to no webhook any more, and means
// nothing.
const enqueue = `
	with ` + tick + `, matching as materialized (
		select no, shard, active from storageapi.webhooks where account = $1 and events @> array[$3]::text[] and ($6 = '' or id = $6)
	), event as (
		insert into storageapi.events (event, account, id, type, at, matched, body)
		select ` + nextNumber + `, $1, $2, $3, $4, (select count(*) from matching where active), case when exists (select from matching) then $5::bytea end from tick
		on conflict (account, id) where known do nothing
		returning event, matched
	), owed as (
		insert into storageapi.queue (webhook, event, shard, kind, parked, due, attempts, before)
		select no, event, shard, 0, false, clock_timestamp(), 0, 0 from event, matching where active
	), skipped as (
		insert into storageapi.attempts (event, webhook, number, state, took, status, class, error, response)
		select event, no, 0, 3, 0, 0, '', '', '' from event, matching where not active
	)
	select matched from event`

// Enqueue implements [webhooks.Store].
//
// Events are ordered by when they were published, and one whose Enqueue is under way
// may come to stand before one that is stored already. Who goes through a list
// meanwhile may not see it, or in a later page.
func (s *Store) Enqueue(ctx context.Context, envelope webhooks.Envelope) (deliveries int, err error) {
	err = s.write(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		deliveries, _, err = s.enqueue(ctx, conn, &envelope, "")
		return err
	})
	if err != nil {
		return 0, err
	}
	if deliveries > 0 {
		s.waker.tell()
	}
	return deliveries, nil
}

// EnqueueTx is Enqueue as a part of the host's transaction: the event is stored when
// that is committed, and not at all if it is undone. Deliveries begin within the
// time of [PollEvery] after the commit. An event is listed as of when EnqueueTx was
// called, and webhooks get it that were subscribed then: commit soon.
func (s *Store) EnqueueTx(ctx context.Context, tx pgx.Tx, envelope webhooks.Envelope) (deliveries int, err error) {
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	defer s.steps.RUnlock()
	deliveries, _, err = s.enqueue(ctx, tx, &envelope, "")
	return deliveries, err
}

// PublishTx is [webhooks.WebhookService.Publish] as a part of the host's transaction:
// the event is delivered if that is committed, and vanishes with it otherwise. See
// [Store.EnqueueTx].
func (s *Store) PublishTx(ctx context.Context, tx pgx.Tx, service *webhooks.WebhookService, event webhooks.Event) error {
	envelope, err := service.Seal(event)
	if err != nil {
		return err
	}
	_, err = s.EnqueueTx(ctx, tx, envelope)
	return err
}

// enqueue stores an event for the only webhook, or if that is empty for all that are
// subscribed. It returns how many deliveries of it were owed at first, and whether it
// is new.
func (s *Store) enqueue(ctx context.Context, db querier, envelope *webhooks.Envelope, only string) (deliveries int, isNew bool, err error) {
	body := envelope.Body
	if body == nil {
		body = []byte{} // not null
	}
	for try := 1; ; try++ {
		err := db.QueryRow(ctx, s.sql(enqueue), envelope.Account, envelope.ID, string(envelope.Type), utc(envelope.Timestamp), body, only).Scan(&deliveries)
		if !errors.Is(err, pgx.ErrNoRows) {
			return deliveries, true, err
		}
		err = db.QueryRow(ctx, s.sql(`select matched from storageapi.events where account = $1 and id = $2 and known`),
			envelope.Account, envelope.ID).Scan(&deliveries)
		if !errors.Is(err, pgx.ErrNoRows) || try == maxTries { // else it was purged in between
			return deliveries, false, err
		}
	}
}

// numberAfter returns the least number of an event that was not published before
// that time.
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
