package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/transfer"
)

const (
	dueColumn      = 4                     // index in pendingColumns
	perMillisecond = 1000 * perMicrosecond // event numbers
	maxNumber      = 1<<63 - 1
)

var (
	eventRow       = []string{"event", "account", "id", "type", "at", "matched", "known", "trace", "resource"}
	bodyRow        = []string{"event", "body"}
	pendingColumns = []string{"webhook", "event", "shard", "recovered", "due", "attempts", "before"}
	attemptRow     = []string{"event", "webhook", "number", "state", "started_at", "took", "status", "class", "error", "response"}
)

const (
	// ahead moves the event clock to at least the microsecond $1, so that new events get later
	// numbers.
	ahead = `select setval(tableoid::regclass, $1) from storageapi.event_clock where last_value < $1`

	// importMarks selects the confirmed time, and the numbers from which events, bodies and
	// attempts exist.
	importMarks = `
		select ` + confirmedNow + `, (select min(event) from storageapi.marks where name in ('attempts', 'ids')),
			(select event from storageapi.marks where name = 'payloads'), (select event from storageapi.marks where name = 'attempts')`
)

var (
	addIDs      = query("add_ids")
	findNumbers = query("find_numbers")
)

// An importedEvent is an event to be added, with its number.
type importedEvent struct {
	*transfer.Event
	number int64
}

// addEvents adds missing events with their deliveries. It omits events, bodies and attempts that
// are older than the marks, as if they had been published and purged here.
func (i *importer) addEvents(ctx context.Context) error {
	if len(i.events) == 0 {
		return nil
	}
	if err := i.lockMark(ctx, i.tx, "payloads"); err != nil {
		return err
	}
	events, err := i.number(ctx)
	if err != nil || len(events) == 0 {
		return err
	}
	var rows, bodies, attempts, pending, first [][]any
	var shards []int16
	var hooks, numbers []int64
	soonest := make(map[int64]time.Time) // by webhook number
	for _, e := range events {
		if e.number >= i.eventsFrom { // no part exists for older events
			rows = append(rows, []any{e.number, e.Account, e.ID, string(e.Type), utc(e.Timestamp), e.Matched, !e.Forgotten, optional(e.TraceContext), optional(e.Resource)})
		}
		if !e.NoBody && e.number >= i.bodiesFrom {
			bodies = append(bodies, []any{e.number, storedBody(&e.EncodedEvent)})
		}
		for j := range e.Deliveries {
			d := &e.Deliveries[j]
			name := owned{e.Account, d.WebhookID}
			if known := i.webhooks[name]; d.State == driver.Pending && (known.no == 0 || known.gone) {
				return fmt.Errorf("event %q of account %q: %w: pending for unknown webhook %q", e.ID, e.Account, transfer.ErrRecord, d.WebhookID)
			}
			webhook, err := i.pastWebhook(ctx, name)
			if err != nil {
				return err
			}
			if e.number >= i.attemptsFrom {
				attempts = appendAttempts(attempts, e.number, webhook, d)
			}
			if d.State != driver.Pending {
				continue
			}
			due := i.now.Add(d.Wait)
			if d.AsPublished {
				due = publishedAt(e.number)
			}
			if least, ok := soonest[webhook]; !ok || due.Before(least) {
				soonest[webhook] = due
			}
			row := []any{webhook, e.number, shardOf(e.Account), d.Recovered, due, d.Made, d.Before}
			if pending = append(pending, row); d.First {
				first = append(first, row)
			}
			shards, hooks, numbers = append(shards, shardOf(e.Account)), append(hooks, webhook), append(numbers, e.number)
			i.accounts = append(i.accounts, e.Account)
		}
	}
	// Redelivered events become due before all other deliveries of their webhook in this import.
	// (That order only needs to last until a restart.)
	for _, row := range first {
		webhook := row[0].(int64)
		soonest[webhook] = soonest[webhook].Add(-time.Millisecond)
		row[dueColumn] = soonest[webhook]
	}
	if err := i.addIDs(ctx, events); err != nil {
		return err
	}
	if err := i.copyTo(ctx, "event_log", eventRow, rows); err != nil {
		return err
	}
	if err := i.copyTo(ctx, "event_bodies", bodyRow, bodies); err != nil {
		return err
	}
	if err := i.copyTo(ctx, "pending", pendingColumns, pending); err != nil {
		return err
	}
	if len(pending) > 0 {
		if _, err := i.tx.Exec(ctx, i.sql(noteChange), changeAdded, shards, hooks, numbers); err != nil {
			return err
		}
	}
	return i.copyTo(ctx, "attempt_log", attemptRow, attempts)
}

// errIDTaken means that an event was published while another event with the same id was being
// imported.
var errIDTaken = errors.New("an event ID was published concurrently")

// addIDs adds the ids of events, except forgotten ids.
func (i *importer) addIDs(ctx context.Context, events []importedEvent) error {
	var accounts, ids []string
	var numbers []int64
	for _, e := range events {
		if !e.Forgotten {
			accounts, ids, numbers = append(accounts, e.Account), append(ids, e.ID), append(numbers, e.number)
		}
	}
	var given, added int
	err := i.tx.QueryRow(ctx, i.sql(addIDs), accounts, ids, numbers, i.clock.latest()).Scan(&given, &added)
	if err == nil && added < given {
		err = errIDTaken
	}
	return err
}

// number returns the events that the store lacks, with new numbers. Each number follows all
// existing numbers of its millisecond.
func (i *importer) number(ctx context.Context) (events []importedEvent, err error) {
	var accounts, ids []string
	var known []bool
	var starts []int64 // first numbers of the events' milliseconds
	now := time.Now()
	for _, e := range i.events {
		accounts, ids, known, starts = append(accounts, e.Account), append(ids, e.ID), append(known, !e.Forgotten), append(starts, numberAt(transfer.NoLater(e.PublishedAt, now)))
	}
	type name struct {
		owned
		start int64 // first number of its millisecond if its id is forgotten; else -1
	}
	given, next := make(map[name]bool), make(map[int64]int64) // next: free number by millisecond
	var place int
	var there bool
	var number int64
	batch := &pgx.Batch{}
	batch.Queue(i.sql(ahead), slices.Max(starts)/perMicrosecond+999)
	batch.Queue(i.sql(importMarks)).QueryRow(func(row pgx.Row) error { return row.Scan(&i.now, &i.eventsFrom, &i.bodiesFrom, &i.attemptsFrom) })
	batch.Queue(i.sql(findNumbers), accounts, ids, known, starts).Query(eachRow(func() error {
		e, start := i.events[place], starts[place]
		name := name{owned{e.Account, e.ID}, -1}
		if e.Forgotten {
			name.start = start
		}
		next[start] = max(next[start], number)
		if there || given[name] {
			return nil
		}
		given[name] = true
		if next[start] >= start+perMillisecond {
			return fmt.Errorf("event %q of account %q: %w: field publishedAt: the store already has %d events for this millisecond, which is the maximum",
				e.ID, e.Account, transfer.ErrRecord, perMillisecond)
		}
		events = append(events, importedEvent{e, next[start]})
		next[start]++
		return nil
	}, &place, &there, &number))
	err = i.tx.SendBatch(ctx, batch).Close()
	return events, err
}

// appendAttempts appends the rows of a delivery's attempts, in their order. The row of the attempt
// that settled the delivery has the settled state. A skipped delivery gets an extra row that has
// the number 0 and the skipped state, and is not an attempt.
func appendAttempts(rows [][]any, number, webhook int64, d *transfer.Delivery) [][]any {
	attempts, settled, state := d.Attempts, len(d.Attempts)-1, d.State
	switch d.State {
	case driver.Skipped:
		attempts, settled = append([]driver.Attempt{{}}, attempts...), 0
	case driver.Pending:
		state = d.Settled
		for settled >= 0 && (state == "" || attempts[settled].Number > d.Before) {
			settled--
		}
	}
	for at := range attempts {
		a, of := &attempts[at], int16(stateRetried)
		if at == settled {
			of = settledAs(state)
		}
		rows = append(rows, []any{
			number, webhook, a.Number, of, stored(a.StartedAt), a.Duration.Microseconds(), a.Status, string(a.Class), a.Error, a.Response,
		})
	}
	return rows
}
