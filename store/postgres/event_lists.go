package postgres

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/store/driver"
)

// eventByID selects the event $2 of the account $1.
const eventByID = `
	select i.event, e.type, e.at, case when i.event >= (select event from storageapi.marks where name = 'payloads') then b.body end, coalesce(e.trace, ''), coalesce(e.resource, '')
	from (` + eventOf + `) i
	cross join lateral (select type, at, trace, resource from storageapi.event_log where event between i.event and i.event order by event limit 1) e
	left join lateral (select body from storageapi.event_bodies where event = i.event limit 1) b on true`

// EventByID implements [driver.WebhookStore].
func (s *Store) EventByID(ctx context.Context, account, eventID string) (driver.EncodedEvent, time.Time, error) {
	var number int64
	e, err := only(ctx, s, func(row pgx.Row) (driver.EncodedEvent, error) {
		e := driver.EncodedEvent{ID: eventID, Account: account}
		err := row.Scan(&number, &e.Type, (*instant)(&e.Timestamp), &e.Body, &e.TraceContext, &e.Resource)
		return e, err
	}, eventByID, account, eventID)
	if err != nil {
		return driver.EncodedEvent{}, time.Time{}, err
	}
	return e, publishedAt(number), nil
}

var (
	newestFirst        = query("list_events")
	oldestFirst        = strings.ReplaceAll(newestFirst, "event desc", "event asc")
	webhookNewestFirst = query("list_webhook_events")
	webhookOldestFirst = strings.ReplaceAll(webhookNewestFirst, "event desc", "event asc")
)

// ListEvents implements [driver.WebhookStore]. A transaction of the host that has published (see
// [Store.EnqueueTx]) delays lists that begin with the oldest event, for all accounts. Until the
// transaction ends, these lists end before the events published since it began. Such a page waits
// up to a second for the transaction, and then has a Next if published events are missing. So
// commit soon. If the host publishes under another role than the Store's, grant the Store's role
// pg_read_all_stats. Without that right, or without track_activities, these lists are empty while
// such a transaction is open.
func (s *Store) ListEvents(ctx context.Context, account string, query driver.EventQuery) (page driver.EventPage, err error) {
	from, to := numberAfter(query.From), int64(math.MaxInt64)
	if !query.To.IsZero() {
		to = numberAfter(query.To)
	}
	after, given := positionOf(s.cursors.events, query.After)
	if !query.OldestFirst {
		if given {
			to = min(to, after)
		}
		err := s.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
			page, _, err = s.eventPage(ctx, conn, account, query, from, to, math.MaxInt64)
			return err
		})
		return page, err
	}
	if given {
		from = max(from, after+1)
	}
	until := int64(0)
	for begun, pause := time.Now(), lookAgain; ; pause = min(2*pause, maxLookAgain) {
		var settled int64
		var full bool
		err := s.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
			end, open, err := s.openPublications(ctx, conn)
			if err != nil {
				return err
			}
			if until == 0 {
				until = end
			}
			settled = max(min(until, open), from)
			page, full, err = s.eventPage(ctx, conn, account, query, from, min(to, until), settled)
			return err
		})
		switch {
		case err != nil:
			return driver.EventPage{}, err
		case page.Next == "": // complete
			page.Resume = s.cursors.events.Encode(uint64(max(settled-1, 0)))
			return page, nil
		case full || time.Since(begun) > maxWithheld:
			page.Resume = page.Next
			return page, nil
		}
		if err := wait(ctx, pause); err != nil {
			return driver.EventPage{}, err
		}
	}
}

const (
	maxWithheld  = time.Second            // maximum wait of a page for open transactions
	lookAgain    = 10 * time.Millisecond  // first pause between checks; doubles
	maxLookAgain = 100 * time.Millisecond // maximum pause: each check reads all locks of the server
)

// eventPage returns the events with numbers in [from, to) that are below settled. It sets Next if
// it omits events in this range; full reports whether query.Limit is the reason. It reads Limit
// events and returns those that query.Resources allows. For a webhook it reads events of all types,
// and returns those with a type in query.Types.
func (s *Store) eventPage(ctx context.Context, conn *pgxpool.Conn, account string, query driver.EventQuery, from, to, settled int64) (page driver.EventPage, full bool, err error) {
	var types []string
	if len(query.Types) > 0 {
		types = texts(query.Types)
	}
	newest, oldest, args := newestFirst, oldestFirst, []any{account, from, to, types, query.Limit + 1}
	if query.WebhookID != "" {
		no, err := s.webhookNo(ctx, s.planned(conn), account, query.WebhookID)
		if err != nil {
			return page, false, err
		}
		newest, oldest, args = webhookNewestFirst, webhookOldestFirst, []any{no, from, to, query.Limit + 1}
	}
	sql := newest
	if query.OldestFirst {
		sql = oldest
	}
	rows, err := s.with(conn, indexed).Query(ctx, s.sql(sql), args...)
	if err != nil {
		return page, false, err
	}
	read, last := 0, max(from-1, 0)
	var number int64
	var e driver.StoredEvent
	_, err = pgx.ForEachRow(rows, []any{&number, &e.ID, &e.Type, &e.Resource, (*instant)(&e.Timestamp), &e.HasBody}, func() error {
		if full = read == query.Limit; full || number >= settled {
			page.Next = s.cursors.events.Encode(uint64(last))
			return nil
		}
		e.PublishedAt, last = publishedAt(number), number
		if read++; (types == nil || slices.Contains(query.Types, e.Type)) && query.Resources.Allows(e.Resource) {
			page.Events = append(page.Events, e)
		}
		return nil
	})
	return page, full, err
}

// eventClock selects the lowest number that the next event can get, see enqueueMany. It depends on
// the existing numbers rather than on the time, because the clock may be set back.
const eventClock = `
	select (greatest(last_value, (select event / 4096 from storageapi.event_log order by event desc limit 1)) + 1) * 4096
	from storageapi.event_clock`

// openPublications returns two event numbers. end is the lowest number that an event published from
// now on can get. open is the lowest number that an event of an open transaction may have: it
// equals end if there is no such transaction, and is 0 if it cannot be determined. Events do not
// commit in the order of their numbers. Even so, the next statement on conn sees all events with
// numbers below both end and open: a publisher takes its lock before it gets a number, and holds
// the lock until after its commit.
func (s *Store) openPublications(ctx context.Context, conn *pgxpool.Conn) (end, open int64, err error) {
	var least *int64
	batch := s.batch(lookUp)
	batch.Queue(s.sql(eventClock)).QueryRow(func(row pgx.Row) error { return row.Scan(&end) })
	batch.Queue(openPublications, s.sql(`storageapi.event_log`), s.clock.latest().Add(-maxSkew/2)).QueryRow(func(row pgx.Row) error { return row.Scan(&least) })
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return 0, 0, err
	}
	if least == nil {
		return end, end, nil
	}
	return end, *least, nil
}
