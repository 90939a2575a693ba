package postgres

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/transfer"
)

const (
	// exportNumbers selects the numbers of up to $2 events after the number $1, of all accounts.
	exportNumbers = `
		select event from storageapi.event_log where event > $1
			and event >= (select min(event) from storageapi.marks where name in ('attempts', 'ids')) order by event limit $2`

	// exportHooks selects the webhooks of the accounts $1.
	exportHooks = `
		select no, id, false from storageapi.webhooks where account = any($1::text[])
		union all
		select no, id, true from storageapi.past_webhooks where account = any($1::text[])`

	// exportPending selects the pending deliveries of the events $2 to $3 to the webhooks $1.
	exportPending = `
		select q.webhook, q.event, q.recovered, q.due, q.due - ` + confirmedNow + `, q.attempts, q.before
		from unnest($1::bigint[]) as w (no)
		cross join lateral (select * from storageapi.pending where webhook = w.no and event >= $2 and event <= $3) q`

	// exportAttempts selects the attempts to deliver the events $2 to $3 to the webhooks $1.
	exportAttempts = `
		select a.webhook, a.event, ` + attemptColumns + `
		from unnest($1::bigint[]) as w (no)
		cross join lateral (
			select * from storageapi.attempt_log where webhook = w.no and event <= $3
				and event >= greatest($2, (select event from storageapi.marks where name = 'attempts')) order by event, number) a`
)

var (
	exportDelivered = query("export_delivered_events")
	exportEvents    = query("export_events")
	exportKnown     = query("export_known_events")
)

// atPublishing is a tolerance: a delivery that is due within atPublishing after its event was
// published counts as due at publication.
const atPublishing = time.Second

// events reads events by number. No index has an account's events in that order. So for a single
// account it first finds events through the deliveries of the account's webhooks, and then finds
// the events without deliveries by their ids. Only events found by id have a name in their place.
func (e *exporter) events(ctx context.Context) error {
	if e.account == "" {
		return e.eventRows(ctx, false, exportNumbers, &e.at.number, e.limit)
	}
	if e.at.name == "" {
		hooks, err := e.hooks(ctx, []string{e.account})
		if err != nil {
			return err
		}
		each := max(16, e.limit/max(1, len(hooks.live)+len(hooks.gone)))
		err = e.eventRows(ctx, false, exportDelivered, &e.at.number, e.limit, hooks.live, hooks.gone, each)
		if err != nil || e.full {
			return err
		}
	}
	return e.eventRows(ctx, true, exportKnown, &e.at.name, e.limit, e.account)
}

// eventRows reads the events whose numbers a statement selects. It skips events that the other
// search (by id or by delivery) finds, and events that have neither deliveries nor a known id.
func (e *exporter) eventRows(ctx context.Context, byID bool, sql string, args ...any) error {
	return e.fill(func() (list []exportedRow, err error) {
		numbers, err := rowsOf(ctx, e.tx, scan[int64], e.sql(sql), args...)
		if err != nil || len(numbers) == 0 {
			return nil, err
		}
		events, err := e.load(ctx, numbers)
		for _, event := range events {
			row := exportedRow{at: place{number: event.number}}
			if byID {
				row.at.name = event.ID
			}
			delivered := len(event.Deliveries) > 0
			if elsewhere := e.account != "" && byID == delivered; !elsewhere && (delivered || !event.Forgotten) {
				row.record = &event.Event
			}
			list = append(list, row)
		}
		return list, err
	})
}

// An exportedEvent is an event with its number, and with its deliveries keyed by webhook number.
type exportedEvent struct {
	transfer.Event
	number     int64
	deliveries map[int64]*exportedDelivery
}

// An exportedDelivery is a delivery that is assembled from its rows.
type exportedDelivery struct {
	transfer.Delivery
	settled driver.DeliveryState // the last state of an attempt that settled the delivery
}

// load returns the events that fit into a page, at least one, in the order given.
func (e *exporter) load(ctx context.Context, numbers []int64) ([]*exportedEvent, error) {
	byNumber := make(map[int64]*exportedEvent, len(numbers))
	var accounts []string
	events, err := rowsOf(ctx, e.tx, func(row pgx.Row) (*exportedEvent, error) {
		event := &exportedEvent{deliveries: make(map[int64]*exportedDelivery)}
		var known bool
		err := row.Scan(&event.number, &event.Account, &event.ID, &event.Type, (*instant)(&event.Timestamp), &event.Matched, &known, &event.Body, &event.TraceContext, &event.Resource)
		event.PublishedAt, event.NoBody, event.Forgotten = publishedAt(event.number), event.Body == nil, !known
		byNumber[event.number], accounts = event, append(accounts, event.Account)
		return event, err
	}, e.sql(exportEvents), numbers)
	if err != nil {
		return nil, err
	}
	slices.Sort(accounts)
	hooks, err := e.hooks(ctx, slices.Compact(accounts))
	if err != nil {
		return nil, err
	}
	if err := e.loadDeliveries(ctx, byNumber, hooks); err != nil {
		return nil, err
	}
	for _, event := range events {
		for webhook, d := range event.deliveries {
			if d.WebhookID = hooks.ids[webhook]; d.end() {
				event.Deliveries = append(event.Deliveries, d.Delivery)
			}
		}
		slices.SortFunc(event.Deliveries, func(a, b transfer.Delivery) int { return cmp.Compare(a.WebhookID, b.WebhookID) })
	}
	return events, nil
}

// exportedHooks has the webhooks of some accounts: their ids by number, and the numbers of live and
// of deleted webhooks.
type exportedHooks struct {
	ids        map[int64]string
	live, gone []int64
}

func (e *exporter) hooks(ctx context.Context, accounts []string) (exportedHooks, error) {
	hooks := exportedHooks{ids: make(map[int64]string)}
	rows, err := e.tx.Query(ctx, e.sql(exportHooks), accounts)
	if err != nil {
		return hooks, err
	}
	var id string
	var no int64
	var gone bool
	_, err = pgx.ForEachRow(rows, []any{&no, &id, &gone}, func() error {
		hooks.ids[no] = id
		if gone {
			hooks.gone = append(hooks.gone, no)
		} else {
			hooks.live = append(hooks.live, no)
		}
		return nil
	})
	return hooks, err
}

// loadDeliveries reads the deliveries of events. hooks must have the webhooks of the events'
// accounts.
func (e *exporter) loadDeliveries(ctx context.Context, events map[int64]*exportedEvent, hooks exportedHooks) error {
	least, most := int64(maxNumber), int64(0)
	for number := range events {
		least, most = min(least, number), max(most, number)
	}
	var webhook, event int64
	delivery := func() *exportedDelivery {
		of := events[event]
		if of == nil { // not one of the requested events
			return &exportedDelivery{}
		}
		if of.deliveries[webhook] == nil {
			of.deliveries[webhook] = &exportedDelivery{}
		}
		return of.deliveries[webhook]
	}
	batch := &pgx.Batch{}
	pending := transfer.Delivery{State: driver.Pending}
	var due time.Time
	var wait time.Duration // time until the delivery is due
	batch.Queue(e.sql(exportPending), hooks.live, least, most).Query(eachRow(func() error {
		late := due.Sub(publishedAt(event))
		pending.AsPublished, pending.Wait = pending.Made == 0 && !pending.Recovered && wait <= 0 && late >= 0 && late < atPublishing, 0
		if !pending.AsPublished {
			pending.Wait = wait.Truncate(time.Millisecond)
		}
		delivery().Delivery = pending
		return nil
	}, &webhook, &event, &pending.Recovered, &due, &wait, &pending.Made, &pending.Before))
	var r historyRow
	batch.Queue(e.sql(exportAttempts), slices.Concat(hooks.live, hooks.gone), least, most).Query(eachRow(func() error {
		delivery().log(&r)
		return nil
	}, &webhook, &event, &r.number, &r.state, &r.status, &r.startedAt, &r.took, &r.class, &r.reason, &r.response))
	return e.tx.SendBatch(ctx, batch).Close()
}

// log adds an attempt. Attempts must be added in ascending order.
func (d *exportedDelivery) log(r *historyRow) {
	if state, settled := settledStates[*r.state]; settled {
		d.settled = state
	}
	if *r.state != stateSkipped {
		d.Attempts = append(d.Attempts, r.attempt())
	}
}

// end sets the state after all rows have been read, and reports whether the delivery exists. A
// delivery that was pending when its webhook was deleted does not count as existing.
func (d *exportedDelivery) end() bool {
	switch {
	case d.State != driver.Pending:
		d.State = d.settled
	case d.settled != driver.Skipped:
		d.Settled = d.settled
	}
	return d.State != ""
}
