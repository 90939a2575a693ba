package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/store/transfer"
	"github.com/storageapi/storageapi/webhooks"
)

const (
	dueColumn      = 4                     // of pendingColumns
	perMillisecond = 1000 * perMicrosecond // numbers
	maxNumber      = 1<<63 - 1
)

var (
	eventRow       = []string{"event", "account", "id", "type", "at", "matched", "known", "trace"}
	bodyRow        = []string{"event", "body"}
	pendingColumns = []string{"webhook", "event", "shard", "recovered", "due", "attempts", "before"}
	attemptRow     = []string{"event", "webhook", "number", "state", "started_at", "took", "status", "class", "error", "response"}
)

const (
	// ahead brings the clock of events to the microsecond $1, so that what is published from
	// now on comes after it.
	ahead = `select setval(tableoid::regclass, $1) from storageapi.event_clock where last_value < $1`

	// presentEvents returns the places of events that are there: of those whose id is known by it,
	// of others by the millisecond, too.
	presentEvents = `
		select i.place - 1 from unnest($1::text[], $2::text[], $3::boolean[], $4::bigint[]) with ordinality as i (account, id, known, least, place)
		cross join (select event from storageapi.marks where name = 'ids') mark
		where i.known and (
				exists (
					select from storageapi.id_slots s
					cross join lateral (select event from storageapi.event_ids where slot = s.slot and account = i.account and id = i.id limit 1) k
					where k.event >= mark.event)
				or exists (select from storageapi.event_log where layout = 0 and account = i.account and id = i.id and known and event >= mark.event))
			or (not i.known or i.least < mark.event) and exists (
				select from storageapi.event_log where event >= i.least and event < i.least + 4096000 and account = i.account and id = i.id)`

	// importMarks selects from which events on there are bodies, and attempts.
	importMarks = `
		select (select event from storageapi.marks where name = 'payloads'), (select event from storageapi.marks where name = 'attempts')`

	// lastNumbers returns the last number of an event in the milliseconds that begin with the
	// numbers $1, if there is one.
	lastNumbers = `
		select i.least, l.event from unnest($1::bigint[]) as i (least)
		cross join lateral (select event from storageapi.event_log where event >= i.least and event < i.least + 4096000 order by event desc limit 1) l`
)

// addEvents adds events with their deliveries, unless they are there. What is of before a mark is past
// at once, as it would be here if it had been published here.
func (i *importer) addEvents(ctx context.Context) error {
	if err := i.lockMark(ctx, i.tx, "payloads"); err != nil {
		return err
	}
	events, numbers, err := i.number(ctx)
	if err != nil || len(events) == 0 {
		return err
	}
	var wanted []owned
	for _, e := range events {
		for j := range e.Deliveries {
			wanted = append(wanted, owned{e.Account, e.Deliveries[j].WebhookID})
		}
	}
	if err := i.findWebhooks(ctx, wanted); err != nil {
		return err
	}
	var rows, bodies, attempts [][]any
	var shards []int16
	var hooks, added []int64
	for at, e := range events {
		rows = append(rows, []any{numbers[at], e.Account, e.ID, string(e.Type), utc(e.Timestamp), e.Matched, !e.Forgotten, importedTrace(e)})
		if !e.NoBody && numbers[at] >= i.bodiesFrom {
			bodies = append(bodies, []any{numbers[at], storedBody(&e.EncodedEvent)})
		}
		for j := range e.Deliveries {
			d := &e.Deliveries[j]
			webhook, err := i.webhookOf(ctx, e, d)
			if err != nil {
				return err
			}
			if numbers[at] >= i.attemptsFrom {
				attempts = appendAttempts(attempts, numbers[at], webhook, d)
			}
			if d.State == webhooks.Pending {
				row := i.pendingRow(e, d, numbers[at], webhook)
				if i.pending = append(i.pending, row); d.First {
					i.first = append(i.first, row)
				}
				shards, hooks, added = append(shards, shardOf(e.Account)), append(hooks, webhook), append(added, numbers[at])
				if !slices.Contains(i.owners, e.Account) {
					i.owners = append(i.owners, e.Account)
				}
			}
		}
	}
	i.putFirst()
	if err := i.addIDs(ctx, events, numbers); err != nil {
		return err
	}
	if err := i.copyTo(ctx, "event_log", eventRow, rows); err != nil {
		return err
	}
	if err := i.copyTo(ctx, "event_bodies", bodyRow, bodies); err != nil {
		return err
	}
	if err := i.copyTo(ctx, "pending", pendingColumns, i.pending); err != nil {
		return err
	}
	if len(added) > 0 {
		if _, err := i.tx.Exec(ctx, i.sql(noteChange), changeAdded, shards, hooks, added); err != nil {
			return err
		}
	}
	return i.copyTo(ctx, "attempt_log", attemptRow, attempts)
}

var addIDs = query("add_ids")

// errIDTaken means that an event was published while another with its id was imported.
var errIDTaken = errors.New("an id was published meanwhile")

// addIDs adds the ids of events that are known by them.
func (i *importer) addIDs(ctx context.Context, events []*transfer.Event, numbers []int64) error {
	var accounts, ids []string
	var known []int64
	for at, e := range events {
		if !e.Forgotten {
			accounts, ids, known = append(accounts, e.Account), append(ids, e.ID), append(known, numbers[at])
		}
	}
	var given, added int
	err := i.tx.QueryRow(ctx, i.sql(addIDs), accounts, ids, known).Scan(&given, &added)
	if err == nil && added < given {
		err = errIDTaken
	}
	return err
}

// number returns the events that are not there with the numbers that they get, each after
// all others of its millisecond.
func (i *importer) number(ctx context.Context) (events []*transfer.Event, numbers []int64, err error) {
	var accounts, ids []string
	var known []bool
	var starts []int64
	latest := int64(0)
	for _, e := range i.given.events {
		start := numberAt(e.PublishedAt)
		accounts, ids, known, starts = append(accounts, e.Account), append(ids, e.ID), append(known, !e.Forgotten), append(starts, start)
		latest = max(latest, start)
	}
	last := make(map[int64]int64) // by the first number of the millisecond
	present := make(map[int]bool)
	batch := &pgx.Batch{}
	batch.Queue(indexed)
	batch.Queue(i.sql(ahead), latest/perMicrosecond+999)
	batch.Queue(`select clock_timestamp()`).QueryRow(func(row pgx.Row) error { return row.Scan(&i.now) })
	batch.Queue(i.sql(importMarks)).QueryRow(func(row pgx.Row) error { return row.Scan(&i.bodiesFrom, &i.attemptsFrom) })
	batch.Queue(i.sql(presentEvents), accounts, ids, known, starts).Query(func(rows pgx.Rows) error {
		var place int
		_, err := pgx.ForEachRow(rows, []any{&place}, func() error { present[place] = true; return nil })
		return err
	})
	batch.Queue(i.sql(lastNumbers), distinct(starts)).Query(func(rows pgx.Rows) error {
		var start, number int64
		_, err := pgx.ForEachRow(rows, []any{&start, &number}, func() error { last[start] = number; return nil })
		return err
	})
	if err := i.tx.SendBatch(ctx, batch).Close(); err != nil {
		return nil, nil, err
	}
	type event struct {
		owned
		known bool
		start int64 // of one that is not known
	}
	given := make(map[event]bool)
	for place, e := range i.given.events {
		name := event{owned{e.Account, e.ID}, !e.Forgotten, 0}
		if e.Forgotten {
			name.start = starts[place]
		}
		if present[place] || given[name] {
			continue
		}
		given[name] = true
		number := starts[place]
		if before, ok := last[number]; ok {
			number = before + 1
		}
		if number >= starts[place]+perMillisecond {
			return nil, nil, fmt.Errorf("event %q of account %q: %w: field publishedAt: the store has %d events of that millisecond, and no room for more",
				e.ID, e.Account, transfer.ErrRecord, perMillisecond)
		}
		last[starts[place]] = number
		events, numbers = append(events, e), append(numbers, number)
	}
	return events, numbers, nil
}

// distinct returns the distinct numbers of a list, in the order of their first occurrence.
func distinct(list []int64) (once []int64) {
	seen := make(map[int64]bool, len(list))
	for _, n := range list {
		if !seen[n] {
			seen[n] = true
			once = append(once, n)
		}
	}
	return once
}

// importedTrace returns the stored form of a trace context: null if there is none.
func importedTrace(e *transfer.Event) *string {
	if e.TraceContext == "" {
		return nil
	}
	return &e.TraceContext
}

// webhookOf returns the number of the webhook that a delivery is of.
func (i *importer) webhookOf(ctx context.Context, e *transfer.Event, d *transfer.Delivery) (no int64, err error) {
	name := owned{e.Account, d.WebhookID}
	known, ok := i.webhooks[name]
	if d.State == webhooks.Pending && (!ok || known.gone) {
		return 0, fmt.Errorf("event %q of account %q: %w: it is pending for webhook %q, which is not there", e.ID, e.Account, transfer.ErrRecord, d.WebhookID)
	}
	return i.pastWebhook(ctx, name)
}

// putFirst makes what was redelivered due before what else the page has of its webhook. (It
// need not be so for longer than until a restart, see [webhooks.History].)
func (i *importer) putFirst() {
	for _, first := range i.first {
		due := first[dueColumn].(time.Time)
		for _, row := range i.pending {
			if other := row[dueColumn].(time.Time); row[0] == first[0] && other.Before(due) {
				due = other
			}
		}
		first[dueColumn] = due.Add(-time.Millisecond)
	}
}

// pendingRow is the row of a pending delivery.
func (i *importer) pendingRow(e *transfer.Event, d *transfer.Delivery, number, webhook int64) []any {
	due := i.now.Add(d.Wait)
	if d.AsPublished {
		due = utc(e.PublishedAt)
	}
	return []any{webhook, number, shardOf(e.Account), d.Recovered, due, d.Made, d.Before}
}

// appendAttempts appends the rows of a delivery's attempts, in their order. The state that a
// delivery was in last is that of an attempt.
func appendAttempts(rows [][]any, number, webhook int64, d *transfer.Delivery) [][]any {
	settled, state := -1, int16(stateRetried)
	switch {
	case d.State == webhooks.Skipped:
		rows = append(rows, []any{number, webhook, 0, int16(stateSkipped), nil, int64(0), 0, "", "", ""})
	case d.State == webhooks.Pending:
		for at := range d.Attempts {
			if d.Settled != "" && d.Attempts[at].Number <= d.Before {
				settled, state = at, settledState(d.Settled)
			}
		}
	default:
		settled, state = len(d.Attempts)-1, settledState(d.State)
	}
	for at := range d.Attempts {
		a := &d.Attempts[at]
		of := int16(stateRetried)
		if at == settled {
			of = state
		}
		rows = append(rows, []any{
			number, webhook, a.Number, of, stored(a.StartedAt), a.Duration.Microseconds(), a.Status, string(a.Class), a.Error, a.Response,
		})
	}
	return rows
}

func settledState(state webhooks.DeliveryState) int16 {
	if state == webhooks.Delivered {
		return stateDelivered
	}
	return stateDead
}
