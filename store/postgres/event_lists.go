package postgres

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/webhooks"
)

// EventByID implements [webhooks.Store].
func (s *Store) EventByID(ctx context.Context, account, eventID string) (e webhooks.EncodedEvent, err error) {
	err = s.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		e = webhooks.EncodedEvent{ID: eventID, Account: account}
		err := s.planned(conn).QueryRow(ctx, s.sql(`select type, at, body from storageapi.events where account = $1 and id = $2 and known`),
			account, eventID).Scan(&e.Type, &e.Timestamp, &e.Body)
		e.Timestamp = utc(e.Timestamp)
		return none(err)
	})
	if err != nil {
		return webhooks.EncodedEvent{}, err
	}
	return e, nil
}

// listEvents selects events of the account $1 with numbers from $2 on and before $3, of the types $4 or,
// if those are null, of those that it has, each of which is found by the index.
const listEvents = `
	with recursive has as (
		(select type from storageapi.events where $4::text[] is null and account = $1 order by type limit 1)
		union all
		select (select type from storageapi.events where account = $1 and type > has.type order by type limit 1) from has where has.type is not null
	), types as (
		select type from has where type is not null union all select distinct unnest($4::text[])
	)
	select e.* from types cross join lateral (
		select event, id, type, at, body is not null from storageapi.events
		where account = $1 and type = types.type and event >= $2 and event < $3 order by event {order} limit $5) e
	order by event {order} limit $5`

var (
	newestFirst = strings.ReplaceAll(listEvents, "{order}", "desc")
	oldestFirst = strings.ReplaceAll(listEvents, "{order}", "asc")
)

// ListEvents implements [webhooks.Store]. An event whose Enqueue is under way may come before one that is
// listed already, see [Store.Enqueue]: who follows a list asks again for the last minute.
func (s *Store) ListEvents(ctx context.Context, account string, query webhooks.EventQuery) (page webhooks.EventPage, err error) {
	from, to := numberAfter(query.From), int64(math.MaxInt64)
	if query.From.IsZero() {
		from = 0
	}
	if !query.To.IsZero() {
		to = numberAfter(query.To)
	}
	if after, ok := s.cursor.event(0, query.After); ok && query.OldestFirst {
		from = max(from, after+1)
	} else if ok {
		to = min(to, after)
	}
	var types []string
	if len(query.Types) > 0 {
		types = texts(query.Types)
	}
	sql := newestFirst
	if query.OldestFirst {
		sql = oldestFirst
	}
	err = s.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		page = webhooks.EventPage{}
		batch := &pgx.Batch{}
		batch.Queue(indexed)
		batch.Queue(s.sql(sql), account, from, to, types, query.Limit+1).Query(func(rows pgx.Rows) error {
			var last int64
			for rows.Next() {
				var number int64
				var e webhooks.StoredEvent
				var at time.Time
				if err := rows.Scan(&number, &e.ID, &e.Type, &at, &e.HasBody); err != nil {
					return err
				}
				if len(page.Events) == query.Limit {
					page.Next = s.cursor.text(0, last)
					continue
				}
				e.Timestamp, e.PublishedAt, last = utc(at), publishedAt(number), number
				page.Events = append(page.Events, e)
			}
			return rows.Err()
		})
		return conn.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return webhooks.EventPage{}, err
	}
	return page, nil
}
