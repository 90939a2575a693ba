package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/store/transfer"
)

// moving is the timeout of a page of an export or import without a deadline.
const moving = time.Minute

// Import implements [transfer.Store]. Its steps run one at a time, even if several Imports and
// Purges run at the same time. Publishing, claims and requests continue meanwhile. Without a
// deadline, a step takes at most a minute.
//
// An event's PublishedAt must be from 2020 to 2091. It determines the event's place in the lists of
// its webhooks, which is after existing events of the same millisecond.
func (s *Store) Import(ctx context.Context, records []transfer.Record) error {
	if err := transfer.Check(records); err != nil {
		return err
	}
	ctx, cancel := within(ctx, moving)
	defer cancel()
	var err error
	var pending []string // accounts with new pending deliveries
	for try := 1; ; try++ {
		err = s.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
			i := importer{Store: s, tx: tx, batch: &pgx.Batch{}, webhooks: make(map[owned]importedWebhook)}
			err := i.run(ctx, records)
			pending = i.accounts
			return err
		})
		if !numberTaken(err) || try == maxTries {
			break
		}
	}
	if code(err) == uniqueViolation || errors.Is(err, errIDTaken) {
		err = fmt.Errorf("an imported record %w: another call added it at the same time", transfer.ErrConflict)
	}
	if err == nil {
		s.changed(pending...)
	}
	return err
}

// numberTaken reports whether err means that an event published meanwhile has the number of an
// imported event.
func numberTaken(err error) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer) && answer.Code == uniqueViolation && strings.HasPrefix(answer.TableName, "event_log")
}

// An importer is one step of Import.
type importer struct {
	*Store
	tx pgx.Tx

	// The batch adds all records except keys, events and recoveries, which are added after the
	// batch has read the store's state.
	batch      *pgx.Batch
	keys       []*transfer.Key
	events     []*transfer.Event
	recoveries []*transfer.Recovery
	entries    []entryRow

	webhooks map[owned]importedWebhook // webhooks of events and recoveries
	accounts []string                  // accounts with new pending deliveries

	now                                  time.Time // the confirmed time
	eventsFrom, bodiesFrom, attemptsFrom int64     // the marks
}

// An owned identifies an object of an account by its id.
type owned struct{ account, id string }

// An importedWebhook is the webhook of imported deliveries.
type importedWebhook struct {
	no   int64 // 0 means that the store does not know the webhook
	gone bool  // deleted
}

const (
	// addRequest and the following statements do not change existing rows, except that addScan
	// fills an empty state.
	addRequest  = `insert into storageapi.requests (kind, account, name, id, sum, at, key_id) values ($1, $2, $3, $4, $5, $6, $7) on conflict do nothing`
	addAlert    = `insert into storageapi.alerts (account, series, state, due) values ($1, $2, $3, $4) on conflict do nothing`
	addDedupKey = `insert into storageapi.dedup_keys (account, key, until) values ($1, $2, $3) on conflict do nothing`
	addScan     = `insert into storageapi.marks as m (name, seal) values ('scan', $1)
		on conflict (name) do update set seal = excluded.seal where m.seal = ''`

	// erasingOf selects the accounts among $1 that are being erased.
	erasingOf = `select from storageapi.erasures where account = any($1::text[])`

	// takenWebhooks takes parallel lists of accounts $1 and webhook ids $2. It selects the pairs
	// whose id belongs to a webhook of another account.
	takenWebhooks = `
		select i.account, i.id from unnest($1::text[], $2::text[]) as i (account, id)
		cross join lateral (select account from storageapi.webhooks where id = i.id limit 1) w where w.account <> i.account`

	// findWebhooks selects the webhooks with the accounts $1 and the ids $2, which are parallel
	// lists. It includes deleted webhooks.
	findWebhooks = `
		select i.account, i.id, w.no, w.gone from unnest($1::text[], $2::text[]) as i (account, id)
		cross join lateral (
			select no, false as gone from storageapi.webhooks where account = i.account and id = i.id
			union all
			select max(no), true from storageapi.past_webhooks where account = i.account and id = i.id) w
		where w.no is not null order by w.gone desc`
)

// sort adds records to the batch or, if they depend on the store's state, groups them by kind for
// later. It returns an error for records of an unknown kind, which would otherwise be lost.
func (i *importer) sort(records []transfer.Record) error {
	for _, r := range records {
		switch r := r.(type) {
		case *transfer.Key:
			i.keys = append(i.keys, r)
		case *transfer.Webhook:
			i.batch.Queue(i.sql(insertWebhook), i.row(&r.Webhook)...)
		case *transfer.Request:
			kind := keyRequests
			if r.Webhook {
				kind = webhookRequests
			}
			i.batch.Queue(i.sql(addRequest), kind, r.Account, r.IdempotencyKey, r.Made.ID, r.Made.Fingerprint[:], utc(transfer.NoLater(r.At, time.Now())), r.KeyID)
		case *transfer.Alert:
			i.batch.Queue(i.sql(addAlert), r.Account, r.Series, r.State, r.Due)
		case *transfer.DedupKey:
			i.batch.Queue(i.sql(addDedupKey), r.Account, r.Key, utc(r.Until))
		case *transfer.Scan:
			i.batch.Queue(i.sql(addScan), r.State)
		case *transfer.Event:
			if at := utc(r.PublishedAt); at.Before(epoch) || numberAt(at.Add(time.Millisecond)) >= maxNumber {
				return fmt.Errorf("event %q of account %q: %w: field publishedAt: must be from 2020 to 2091", r.ID, r.Account, transfer.ErrRecord)
			}
			i.events = append(i.events, r)
			for j := range r.Deliveries {
				i.webhooks[owned{r.Account, r.Deliveries[j].WebhookID}] = importedWebhook{}
			}
		case *transfer.Recovery:
			i.recoveries = append(i.recoveries, r)
			i.webhooks[owned{r.Account, r.WebhookID}] = importedWebhook{}
		case *transfer.AuditEntry:
			row := rowOfAuditEntry(&r.Entry)
			row.StoredAt = utc(r.StoredAt)
			i.entries = append(i.entries, row)
		default:
			return fmt.Errorf("a record of kind %s: %w: this store has no records of this kind", r.Kind(), transfer.ErrRecord)
		}
	}
	return i.queueAuditEntries(i.batch, i.entries...)
}

// run adds the records.
func (i *importer) run(ctx context.Context, records []transfer.Record) error {
	if err := i.sort(records); err != nil {
		return err
	}
	var owners, accounts, ids []string
	for _, r := range records {
		owners = append(owners, r.Owner())
		if w, ok := r.(*transfer.Webhook); ok {
			accounts, ids = append(accounts, w.Account), append(ids, w.ID)
		}
	}
	i.batch.Queue(i.sql(erasingOf), owners).Query(eachRow(func() error { return auth.ErrErasing }))
	var name owned
	i.batch.Queue(i.sql(takenWebhooks), accounts, ids).Query(eachRow(func() error {
		return fmt.Errorf("webhook %q of account %q: its ID %w", name.id, name.account, transfer.ErrConflict)
	}, &name.account, &name.id))
	accounts, ids = nil, nil
	for name := range i.webhooks {
		accounts, ids = append(accounts, name.account), append(ids, name.id)
	}
	var found importedWebhook
	i.batch.Queue(i.sql(findWebhooks), accounts, ids).Query(eachRow(func() error {
		i.webhooks[name] = found
		return nil
	}, &name.account, &name.id, &found.no, &found.gone))
	if err := i.tx.SendBatch(ctx, i.batch).Close(); err != nil {
		return err
	}
	if err := i.addKeys(ctx); err != nil {
		return err
	}
	if err := i.addEvents(ctx); err != nil {
		return err
	}
	return i.addRecoveries(ctx)
}

// eachRow returns a callback for a batched statement. For each row it scans the columns into fields
// and calls do.
func eachRow(do func() error, fields ...any) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, fields, do)
		return err
	}
}

// copyTo adds rows to a table with COPY.
func (i *importer) copyTo(ctx context.Context, table string, columns []string, rows [][]any) error {
	if len(rows) == 0 {
		return nil
	}
	_, err := i.tx.CopyFrom(ctx, pgx.Identifier{i.options.schema, table}, columns, pgx.CopyFromRows(rows))
	return err
}

// pastWebhook returns the number of a webhook that may be deleted, or a new number if the store
// does not know the webhook.
func (i *importer) pastWebhook(ctx context.Context, name owned) (no int64, err error) {
	if known := i.webhooks[name]; known.no != 0 {
		return known.no, nil
	}
	err = i.tx.QueryRow(ctx, i.sql(`
		insert into storageapi.past_webhooks (no, account, id, deleted_at)
		values (nextval((select tableoid::regclass from storageapi.webhooks_no_seq)), $1, $2, clock_timestamp()) returning no`), name.account, name.id).Scan(&no)
	i.webhooks[name] = importedWebhook{no, true}
	return no, err
}

// addRecovery adds the recovery $4 of the account $1 and the webhook $3. The recovery continues
// with the event $2, with the first event if $2 does not exist, or after all existing events if $2
// is empty.
const addRecovery = `
	insert into storageapi.recoveries (account, webhook, id, webhook_id, states, from_at, to_at, created_at, recovered, done, next)
	select $1, $3, $4, $5, $6, $7, $8, $9, $10, $11, case
		when $2 = '' then coalesce((select event + 1 from storageapi.event_log order by event desc limit 1), 0)
		else coalesce(
			(` + eventOf + `),
			(select max(a.event) from storageapi.attempt_log a cross join lateral (
				select id from storageapi.event_log where event between a.event and a.event order by event limit 1) e where a.webhook = $3 and e.id = $2),
			0) end
	on conflict do nothing`

// addRecoveries adds recoveries that do not exist yet.
func (i *importer) addRecoveries(ctx context.Context) error {
	for _, r := range i.recoveries {
		no, err := i.pastWebhook(ctx, owned{r.Account, r.WebhookID})
		if err != nil {
			return err
		}
		added, err := i.tx.Exec(ctx, i.sql(addRecovery), r.Account, r.NextEventID, no, r.ID, r.WebhookID, texts(r.States),
			stored(r.From), utc(r.To), utc(r.CreatedAt), r.Recovered, r.Done)
		if err != nil {
			return err
		}
		if added.RowsAffected() == 1 {
			continue
		}
		var there bool
		if err := i.tx.QueryRow(ctx, i.sql(`select exists (select from storageapi.recoveries where id = $1 and account = $2)`), r.ID, r.Account).Scan(&there); err != nil {
			return err
		}
		if !there {
			return fmt.Errorf("recovery %q of account %q: %w: its ID is taken, or its webhook has another unfinished recovery", r.ID, r.Account, transfer.ErrConflict)
		}
	}
	return nil
}
