package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/store/driver"
)

const (
	maxSteps  = 4   // maximum statements for a page of a list
	leastStep = 256 // minimum deliveries that a statement reads if it filters
)

// A historyRow is a delivery with one of its attempts, if it has any. Rows of one delivery are
// consecutive.
type historyRow struct {
	event                   int64
	eventID, webhookID      string
	eventType, resource     string
	due                     *time.Time // nil unless the delivery is pending
	number, status          *int
	state                   *int16
	startedAt               instant
	took                    *int64
	class, reason, response *string
}

const attemptColumns = `a.number, a.state, a.status, a.started_at, a.took, a.class, a.error, a.response`

// A history assembles deliveries from rows.
type history struct {
	deliveries []driver.Delivery
	events     []int64
}

func (h *history) add(r *historyRow) {
	n := len(h.deliveries)
	if n == 0 || h.events[n-1] != r.event || h.deliveries[n-1].WebhookID != r.webhookID {
		d := driver.Delivery{
			EventID: r.eventID, WebhookID: r.webhookID, Type: driver.EventType(r.eventType), Resource: r.resource, PublishedAt: publishedAt(r.event),
		}
		if r.due != nil {
			d.State, d.NextAttemptAt = driver.Pending, utc(*r.due)
		}
		h.deliveries, h.events = append(h.deliveries, d), append(h.events, r.event)
		n++
	}
	if r.number == nil {
		return
	}
	d := &h.deliveries[n-1]
	if state, settled := settledStates[*r.state]; settled && r.due == nil {
		d.State = state
	}
	if *r.state != stateSkipped {
		d.Attempts = append(d.Attempts, r.attempt())
	}
}

// attempt returns the attempt of a row that has one.
func (r *historyRow) attempt() driver.Attempt {
	return driver.Attempt{
		Number: *r.number, StartedAt: time.Time(r.startedAt), Duration: time.Duration(*r.took) * time.Microsecond, Status: *r.status,
		Class: driver.ErrorClass(*r.class), Error: *r.reason, Response: *r.response,
	}
}

// settledStates maps the stored state of a delivery's last attempt to the state of the delivery. It
// does not apply to pending deliveries.
var settledStates = map[int16]driver.DeliveryState{stateDelivered: driver.Delivered, stateDead: driver.Dead, stateSkipped: driver.Skipped}

// settledAs returns the state to store with the attempt that settles a delivery as the given state.
func settledAs(state driver.DeliveryState) int16 {
	for of, known := range settledStates {
		if known == state {
			return of
		}
	}
	return stateRetried
}

// query reads the rows of a history. It omits deliveries that were still pending when their webhook
// was deleted.
func (h *history) query(ctx context.Context, db querier, sql string, args ...any) error {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	var r historyRow
	_, err = pgx.ForEachRow(rows, []any{
		&r.event, &r.eventID, &r.webhookID, &r.eventType, &r.resource, &r.due,
		&r.number, &r.state, &r.status, &r.startedAt, &r.took, &r.class, &r.reason, &r.response,
	}, func() error { h.add(&r); return nil })
	return err
}

var deliveriesOfEvent = query("deliveries_of_event")

// EventDeliveries implements [driver.WebhookStore].
func (s *Store) EventDeliveries(ctx context.Context, account, eventID string) (list []driver.Delivery, err error) {
	var h history
	err = s.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		h = history{}
		return h.query(ctx, s.with(conn, indexed), s.sql(deliveriesOfEvent), account, eventID)
	})
	switch {
	case err != nil:
		return nil, err
	case len(h.deliveries) == 0:
		return nil, apierr.ErrNotFound
	}
	for _, d := range h.deliveries[1:] {
		if d.State != "" {
			list = append(list, d)
		}
	}
	return list, nil
}

// ListDeliveries implements [driver.WebhookStore]. It reads failed deliveries from failure_log. A
// page that is filtered by state, type or resource examines at most maxSteps times leastStep
// deliveries, or more if the page is larger or [driver.DeliveryQuery.FullPages] is true.
func (s *Store) ListDeliveries(ctx context.Context, account, webhookID string, query driver.DeliveryQuery) (page driver.DeliveryPage, err error) {
	from, to := numberAt(query.From), int64(1<<63-1)
	if !query.To.IsZero() {
		to = numberAfter(query.To)
	}
	err = s.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		page = driver.DeliveryPage{}
		no, err := s.webhookNo(ctx, s.planned(conn), account, webhookID)
		if err != nil {
			return err
		}
		if after, ok := positionOf(s.cursors.deliveries, query.After); ok {
			to = min(to, after)
		}
		return s.listDeliveries(ctx, conn, no, webhookID, &query, from, to, &page)
	})
	if err != nil {
		return driver.DeliveryPage{}, err
	}
	return page, nil
}

func (s *Store) listDeliveries(ctx context.Context, conn *pgxpool.Conn, no int64, webhookID string, query *driver.DeliveryQuery, from, to int64, page *driver.DeliveryPage) error {
	of, step := list, query.Limit+1
	if query.OnlyFailed() {
		of = listFailed
	}
	if len(query.States)+len(query.Types) > 0 || !query.Resources.IsZero() {
		step = max(step, leastStep)
	}
	included := to
	for steps := 0; query.FullPages() || steps < maxSteps; steps++ {
		var h history
		if err := h.query(ctx, s.with(conn, indexed), s.sql(of), no, webhookID, from, to, step); err != nil {
			return err
		}
		for i, d := range h.deliveries {
			if d.State == "" || !query.Matches(&d) {
				continue
			}
			if len(page.Deliveries) == query.Limit {
				page.Next = s.cursors.deliveries.Encode(uint64(included))
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
	page.Next = s.cursors.deliveries.Encode(uint64(to))
	if len(page.Deliveries) == query.Limit {
		page.Next = s.cursors.deliveries.Encode(uint64(included))
	}
	return nil
}

var (
	list       = query("list_deliveries")
	listFailed = query("list_failed_deliveries")
)

// webhookNo returns the number of a webhook, or ErrNotFound.
func (s *Store) webhookNo(ctx context.Context, db querier, account, id string) (no int64, err error) {
	err = db.QueryRow(ctx, s.sql(`select no from storageapi.webhooks where account = $1 and id = $2`), account, id).Scan(&no)
	return no, none(err)
}
