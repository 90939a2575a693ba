package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/webhooks"
)

const (
	maxSteps  = 4   // statements for a page of a list, at most
	leastStep = 256 // deliveries that a statement reads, at least, if it filters
)

// A historyRow is a delivery with one of its attempts, if it has any. Rows of one
// delivery follow one another.
type historyRow struct {
	event                   int64
	eventID, webhookID      string
	eventType               string
	due                     *time.Time // if it is pending
	number, state, status   *int
	startedAt               *time.Time
	took                    *int64
	class, reason, response *string
}

const attemptColumns = `a.number, a.state, a.status, a.started_at, a.took, a.class, a.error, a.response`

func (r *historyRow) fields() []any {
	return []any{
		&r.event, &r.eventID, &r.webhookID, &r.eventType, &r.due,
		&r.number, &r.state, &r.status, &r.startedAt, &r.took, &r.class, &r.reason, &r.response,
	}
}

// A history assembles deliveries from rows.
type history struct {
	deliveries []webhooks.Delivery
	events     []int64
}

func (h *history) add(r *historyRow) {
	n := len(h.deliveries)
	if n == 0 || h.events[n-1] != r.event || h.deliveries[n-1].WebhookID != r.webhookID {
		d := webhooks.Delivery{
			EventID: r.eventID, WebhookID: r.webhookID, Type: webhooks.EventType(r.eventType), PublishedAt: publishedAt(r.event),
		}
		if r.due != nil {
			d.State, d.NextAttemptAt = webhooks.Pending, utc(*r.due)
		}
		h.deliveries, h.events = append(h.deliveries, d), append(h.events, r.event)
		n++
	}
	if r.number == nil {
		return
	}
	d := &h.deliveries[n-1]
	if state := stateOf(*r.state); r.due == nil && state != "" {
		d.State = state
	}
	if *r.state != stateSkipped {
		d.Attempts = append(d.Attempts, r.attempt())
	}
}

// attempt returns the attempt of a row that has one.
func (r *historyRow) attempt() webhooks.Attempt {
	return webhooks.Attempt{
		Number: *r.number, StartedAt: loaded(r.startedAt), Duration: time.Duration(*r.took) * time.Microsecond, Status: *r.status,
		Class: webhooks.ErrorClass(*r.class), Error: *r.reason, Response: *r.response,
	}
}

// stateOf returns the state of a delivery that is not pending, by that of its last attempt;
// empty if that is none of those.
func stateOf(state int) webhooks.DeliveryState {
	switch state {
	case stateDelivered:
		return webhooks.Delivered
	case stateDead:
		return webhooks.Dead
	case stateSkipped:
		return webhooks.Skipped
	}
	return ""
}

// query reads the rows of a history. A delivery that was never settled is not part of it
// if its webhook was deleted.
func (h *history) query(ctx context.Context, conn *pgxpool.Conn, sql string, args ...any) error {
	batch := &pgx.Batch{}
	batch.Queue(indexed)
	batch.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var r historyRow
			if err := rows.Scan(r.fields()...); err != nil {
				return err
			}
			h.add(&r)
		}
		return rows.Err()
	})
	return conn.SendBatch(ctx, batch).Close()
}

// EventDeliveries implements [webhooks.Store].
func (s *Store) EventDeliveries(ctx context.Context, account, eventID string) (list []webhooks.Delivery, err error) {
	var h history
	err = s.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		// One row at least, if there is such an event, with no webhook.
		return h.query(ctx, conn, s.sql(`
			with hook as (
				select no, id, true as there from storageapi.webhooks where account = $1
				union all
				select no, id, false from storageapi.past_webhooks where account = $1
			)
			select e.event, e.id, '', e.type, null::timestamptz, null::integer, null::integer, null::integer, null::timestamptz, null::bigint,
				null::text, null::text, null::text
			from storageapi.events e where e.account = $1 and e.id = $2 and e.known
			union all
			select e.event, e.id, h.id, e.type, q.due, `+attemptColumns+`
			from storageapi.events e
			cross join hook h
			left join lateral (select due from storageapi.queue where h.there and webhook = h.no and event = e.event limit 1) q on true
			left join lateral (select * from storageapi.attempts where event = e.event and webhook = h.no order by number) a on true
			where e.account = $1 and e.id = $2 and e.known and (q.due is not null or a.event is not null)
			order by 3, 6`), account, eventID)
	})
	switch {
	case err != nil:
		return nil, err
	case len(h.deliveries) == 0:
		return nil, webhooks.ErrNotFound
	}
	for _, d := range h.deliveries[1:] {
		if d.State != "" {
			list = append(list, d)
		}
	}
	return list, nil
}

// ListDeliveries implements [webhooks.Store]. It looks for failed deliveries among those, in
// the table failures. For other states it reads some hundred deliveries a page.
func (s *Store) ListDeliveries(ctx context.Context, account, webhookID string, query webhooks.DeliveryQuery) (page webhooks.DeliveryPage, err error) {
	from, to := numberAt(query.From), int64(1<<63-1)
	if !query.To.IsZero() {
		to = numberAfter(query.To)
	}
	err = s.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		no, err := s.webhookNo(ctx, s.planned(conn), account, webhookID)
		if err != nil {
			return err
		}
		if after, ok := s.cursor.event(no, query.After); ok {
			to = min(to, after)
		}
		return s.listDeliveries(ctx, conn, no, webhookID, &query, from, to, &page)
	})
	if err != nil {
		return webhooks.DeliveryPage{}, err
	}
	return page, nil
}

func (s *Store) listDeliveries(ctx context.Context, conn *pgxpool.Conn, no int64, webhookID string, query *webhooks.DeliveryQuery, from, to int64, page *webhooks.DeliveryPage) error {
	of, step := list, query.Limit+1
	whole := query.Failed && len(query.States) == 0 // no page is cut short
	if query.OnlyFailed() {
		of = listFailed
	}
	if len(query.States) > 0 {
		step = max(step, leastStep)
	}
	included := to
	for steps := 0; whole || steps < maxSteps; steps++ {
		var h history
		if err := h.query(ctx, conn, s.sql(of), no, webhookID, from, to, step); err != nil {
			return err
		}
		for i, d := range h.deliveries {
			if d.State == "" || !query.Matches(&d) {
				continue
			}
			if len(page.Deliveries) == query.Limit {
				page.Next = s.cursor.text(no, included)
				return nil
			}
			page.Deliveries = append(page.Deliveries, d)
			included = h.events[i]
		}
		if len(h.events) < step {
			return nil
		}
		to = h.events[len(h.events)-1]
	}
	page.Next = s.cursor.text(no, to)
	if len(page.Deliveries) == query.Limit {
		page.Next = s.cursor.text(no, included)
	}
	return nil
}

// list and listFailed select deliveries of one webhook: of events from $3 to before $4, $5 at
// most. Of those in failures some may have been delivered, see migration 8.
const (
	list = `
	with listed as (
		select event from (
			(select event from storageapi.queue where webhook = $1 and event >= $3 and event < $4 order by event desc limit $5)
			union
			(select event from storageapi.attempts where webhook = $1 and event >= $3 and event < $4 group by event order by event desc limit $5)
		) both_of_them order by event desc limit $5
	)` + fromListed

	listFailed = `
	with listed as (
		select event from storageapi.failures where webhook = $1 and event >= $3 and event < $4 order by event desc limit $5
	)` + fromListed

	fromListed = `
	select e.event, e.id, $2::text, e.type, q.due, ` + attemptColumns + `
	from listed
	cross join lateral (select * from storageapi.events where event = listed.event limit 1) e
	left join lateral (select due from storageapi.queue where webhook = $1 and event = listed.event limit 1) q on true
	left join lateral (select * from storageapi.attempts where event = listed.event and webhook = $1 order by number) a on true
	order by e.event desc, a.number`
)

// webhookNo returns the number of a webhook, or ErrNotFound.
func (s *Store) webhookNo(ctx context.Context, db querier, account, id string) (no int64, err error) {
	err = db.QueryRow(ctx, s.sql(`select no from storageapi.webhooks where account = $1 and id = $2`), account, id).Scan(&no)
	return no, none(err)
}
