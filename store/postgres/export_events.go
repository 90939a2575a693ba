package postgres

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/store/transfer"
	"github.com/storageapi/storageapi/webhooks"
)

// Events are exported in the order of their numbers. There is no index of an account's
// events in that order, so those of one account are found by the deliveries of its webhooks,
// and then, by their ids, those that have no deliveries. What tells the two apart is the
// first byte of a row.
const (
	rowNumber = 'n'
	rowID     = 'i'
)

const (
	// exportNumbers selects the numbers of $2 events after the number $1, of all accounts.
	exportNumbers = `
		select event from storageapi.event_log where event > $1
			and event >= (select min(event) from storageapi.marks where name in ('attempts', 'ids')) order by event limit $2`

	// exportHooks selects the webhooks of the accounts $1.
	exportHooks = `
		select account, no, id, false from storageapi.webhooks where account = any($1::text[])
		union all
		select account, no, id, true from storageapi.past_webhooks where account = any($1::text[])`

	// exportPending selects what is pending for the webhooks $1 of the events $2 to $3.
	exportPending = `
		select q.webhook, q.event, q.recovered, q.due, q.due - clock_timestamp(), q.attempts, q.before
		from unnest($1::bigint[]) as w (no)
		cross join lateral (select * from storageapi.pending where webhook = w.no and event >= $2 and event <= $3) q`

	// exportAttempts selects the attempts at delivering the events $2 to $3 to the webhooks $1.
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

// atPublishing is how much later than it was published what is due since then may be.
const atPublishing = time.Second

func (e *exporter) events(ctx context.Context, after []byte) error {
	if len(after) > 0 && after[0] == rowID && e.account != "" {
		return e.eventsByID(ctx, string(after[1:]))
	}
	number := int64(-1)
	if len(after) > 0 {
		var err error
		if number, err = parseNumber(after[1:]); err != nil || after[0] != rowNumber {
			return transfer.ErrPosition
		}
	}
	if e.account == "" {
		return e.allEvents(ctx, number)
	}
	more, err := e.deliveredEvents(ctx, number)
	if err != nil || !more {
		return err
	}
	return e.eventsByID(ctx, "")
}

func (e *exporter) numbers(ctx context.Context, sql string, args ...any) ([]int64, error) {
	rows, err := e.tx.Query(ctx, e.sql(sql), args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// allEvents reads the events of all accounts, except those of which nothing is known any more.
func (e *exporter) allEvents(ctx context.Context, after int64) error {
	for {
		numbers, err := e.numbers(ctx, exportNumbers, after, e.limit)
		if err != nil || len(numbers) == 0 {
			return err
		}
		events, err := e.load(ctx, numbers)
		if err != nil {
			return err
		}
		for _, event := range events {
			after = event.number
			row := append([]byte{rowNumber}, numberRow(after)...)
			if event.Forgotten && len(event.Deliveries) == 0 {
				if !e.filler.Skip(row) {
					return nil
				}
			} else if !e.filler.Add(row, &event.Event) {
				return nil
			}
		}
	}
}

// deliveredEvents reads the events of the account that have deliveries.
func (e *exporter) deliveredEvents(ctx context.Context, after int64) (more bool, err error) {
	hooks, err := e.hooks(ctx, []string{e.account})
	if err != nil {
		return false, err
	}
	each := max(16, e.limit/max(1, len(hooks.live)+len(hooks.gone)))
	for {
		numbers, err := e.numbers(ctx, exportDelivered, after, e.limit, hooks.live, hooks.gone, each)
		if err != nil || len(numbers) == 0 {
			return err == nil, err
		}
		events, err := e.load(ctx, numbers)
		if err != nil {
			return false, err
		}
		for _, event := range events {
			after = event.number
			row := append([]byte{rowNumber}, numberRow(after)...)
			if len(event.Deliveries) == 0 { // it is found by its id, if that is known
				more = e.filler.Skip(row)
			} else {
				more = e.filler.Add(row, &event.Event)
			}
			if !more {
				return false, nil
			}
		}
	}
}

// eventsByID reads the events of the account that have no deliveries.
func (e *exporter) eventsByID(ctx context.Context, after string) error {
	for {
		numbers, err := e.numbers(ctx, exportKnown, after, e.limit, e.account)
		if err != nil || len(numbers) == 0 {
			return err
		}
		events, err := e.load(ctx, numbers)
		if err != nil {
			return err
		}
		for _, event := range events {
			after = event.ID
			row := append([]byte{rowID}, after...)
			var more bool
			if len(event.Deliveries) > 0 {
				more = e.filler.Skip(row)
			} else {
				more = e.filler.Add(row, &event.Event)
			}
			if !more {
				return nil
			}
		}
	}
}

// An exportedEvent has its number.
type exportedEvent struct {
	transfer.Event
	number int64
}

// load returns those of the events, in the order given, that fit into a page; one at least.
func (e *exporter) load(ctx context.Context, numbers []int64) ([]*exportedEvent, error) {
	rows, err := e.tx.Query(ctx, e.sql(exportEvents), numbers)
	if err != nil {
		return nil, err
	}
	events := make(map[int64]*exportedEvent, len(numbers))
	var accounts []string
	for rows.Next() {
		event := &exportedEvent{}
		var known bool
		err := rows.Scan(&event.number, &event.Account, &event.ID, (*string)(&event.Type), &event.Timestamp, &event.Matched, &known, &event.Body, &event.TraceContext)
		if err != nil {
			rows.Close()
			return nil, err
		}
		event.Timestamp, event.PublishedAt = utc(event.Timestamp), publishedAt(event.number)
		event.NoBody, event.Forgotten = event.Body == nil, !known
		events[event.number] = event
		accounts = append(accounts, event.Account)
	}
	if err := rows.Err(); err != nil || len(events) == 0 {
		return nil, err
	}
	slices.Sort(accounts)
	hooks, err := e.hooks(ctx, slices.Compact(accounts))
	if err != nil {
		return nil, err
	}
	if err := e.addDeliveries(ctx, events, hooks); err != nil {
		return nil, err
	}
	var list []*exportedEvent
	for _, number := range numbers {
		if event := events[number]; event != nil {
			slices.SortFunc(event.Deliveries, func(a, b transfer.Delivery) int { return cmp.Compare(a.WebhookID, b.WebhookID) })
			list = append(list, event)
		}
	}
	return list, nil
}

// exportedHooks are webhooks by their numbers.
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
	var account, id string
	var no int64
	var gone bool
	_, err = pgx.ForEachRow(rows, []any{&account, &no, &id, &gone}, func() error {
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

// addDeliveries adds the deliveries of the events, which are of the accounts of these
// webhooks.
func (e *exporter) addDeliveries(ctx context.Context, events map[int64]*exportedEvent, hooks exportedHooks) error {
	least, most := int64(maxNumber), int64(0)
	for number := range events {
		least, most = min(least, number), max(most, number)
	}
	type place struct{ webhook, event int64 }
	found := make(map[place]*exportedDelivery)
	var order []place
	at := func(p place) *exportedDelivery {
		d := found[p]
		if d == nil {
			d = &exportedDelivery{}
			d.WebhookID = hooks.ids[p.webhook]
			found[p] = d
			order = append(order, p)
		}
		return d
	}
	rows, err := e.tx.Query(ctx, e.sql(exportPending), hooks.live, least, most)
	if err != nil {
		return err
	}
	var p place
	var pending exportedPending
	_, err = pgx.ForEachRow(rows, []any{&p.webhook, &p.event, &pending.recovered, &pending.due, &pending.wait, &pending.made, &pending.before}, func() error {
		if event := events[p.event]; event != nil {
			at(p).pend(&pending, event.PublishedAt)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if rows, err = e.tx.Query(ctx, e.sql(exportAttempts), append(slices.Clone(hooks.live), hooks.gone...), least, most); err != nil {
		return err
	}
	for rows.Next() {
		var r historyRow
		if err := rows.Scan(&p.webhook, &p.event, &r.number, &r.state, &r.status, &r.startedAt, &r.took, &r.class, &r.reason, &r.response); err != nil {
			rows.Close()
			return err
		}
		if events[p.event] != nil {
			at(p).log(&r)
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, p := range order {
		if d := found[p]; d.end() {
			events[p.event].Deliveries = append(events[p.event].Deliveries, d.Delivery)
		}
	}
	return nil
}

// An exportedPending is a row of what is pending.
type exportedPending struct {
	recovered    bool
	due          time.Time
	wait         time.Duration // until it is due
	made, before int
}

// An exportedDelivery is put together from rows.
type exportedDelivery struct {
	transfer.Delivery
	settled webhooks.DeliveryState // the last state of an attempt that is none of a pending one
}

func (d *exportedDelivery) pend(r *exportedPending, published time.Time) {
	d.State, d.Made, d.Before, d.Recovered = webhooks.Pending, r.made, r.before, r.recovered
	late := r.due.Sub(published)
	if d.AsPublished = r.made == 0 && !r.recovered && r.wait <= 0 && late >= 0 && late < atPublishing; !d.AsPublished {
		d.Wait = r.wait.Truncate(time.Millisecond)
	}
}

// log adds an attempt; they come in their order.
func (d *exportedDelivery) log(r *historyRow) {
	if state := stateOf(*r.state); state != "" {
		d.settled = state
	}
	if *r.state != stateSkipped {
		d.Attempts = append(d.Attempts, r.attempt())
	}
}

// end sets the state once all rows are there, and reports whether there is such a delivery:
// not if it was pending for a webhook that was deleted.
func (d *exportedDelivery) end() bool {
	switch {
	case d.State != webhooks.Pending:
		d.State = d.settled
	case d.settled != webhooks.Skipped:
		d.Settled = d.settled
	}
	return d.State != ""
}
