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

// Import implements [transfer.Store]. Steps of several Imports, and of Purge, come one after
// the other; publishers, claims and requests go on meanwhile. A step that has no deadline
// takes a minute at most.
//
// An event's PublishedAt must be from 2020 to 2091. An event is listed among others of its
// webhook by that time, and after those of the same millisecond that are there.
func (s *Store) Import(ctx context.Context, records []transfer.Record) error {
	if err := transfer.Check(records); err != nil {
		return err
	}
	given, err := sorted(records)
	if err == nil {
		err = given.check()
	}
	if err != nil {
		return err
	}
	ctx, cancel := within(ctx, moving)
	defer cancel()
	var owners []string // of what is pending
	for try := 1; ; try++ {
		err = s.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
			i := importer{Store: s, tx: tx, given: given, webhooks: make(map[owned]importedWebhook)}
			err := i.run(ctx)
			owners = i.owners
			return err
		})
		if !numberTaken(err) || try == maxTries {
			break
		}
	}
	if code(err) == uniqueViolation || errors.Is(err, errIDTaken) {
		err = fmt.Errorf("a record that is added %w: it was added to the store at the same time", transfer.ErrConflict)
	}
	if err == nil && len(owners) > 0 {
		s.changed(owners...)
	}
	return err
}

// numberTaken reports whether an event that was published meanwhile has the number of an
// imported one.
func numberTaken(err error) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer) && answer.Code == uniqueViolation && strings.HasPrefix(answer.TableName, "recent_events")
}

// A given is what is to be imported, by kind.
type given struct {
	owners     []string // accounts
	keys       []*transfer.Key
	webhooks   []*transfer.Webhook
	requests   []*transfer.Request
	alerts     []*transfer.Alert
	dedupKeys  []*transfer.DedupKey
	fileScan   *transfer.FileScan // the first
	events     []*transfer.Event
	recoveries []*transfer.Recovery
	notices    []*transfer.Notice
}

// sorted returns records by kind. One of a kind that is not known is refused: it would be lost.
func sorted(records []transfer.Record) (*given, error) {
	g := &given{}
	for _, r := range records {
		if account := r.Owner(); len(g.owners) == 0 || account != g.owners[len(g.owners)-1] {
			g.owners = append(g.owners, account)
		}
		switch r := r.(type) {
		case *transfer.Key:
			g.keys = append(g.keys, r)
		case *transfer.Webhook:
			g.webhooks = append(g.webhooks, r)
		case *transfer.Request:
			g.requests = append(g.requests, r)
		case *transfer.Alert:
			g.alerts = append(g.alerts, r)
		case *transfer.DedupKey:
			g.dedupKeys = append(g.dedupKeys, r)
		case *transfer.FileScan:
			if g.fileScan == nil {
				g.fileScan = r
			}
		case *transfer.Event:
			g.events = append(g.events, r)
		case *transfer.Recovery:
			g.recoveries = append(g.recoveries, r)
		case *transfer.Notice:
			g.notices = append(g.notices, r)
		default:
			return nil, fmt.Errorf("a record of kind %s: %w: this store keeps none of that kind", r.Kind(), transfer.ErrRecord)
		}
	}
	return g, nil
}

// check looks for what this store cannot represent.
func (g *given) check() error {
	for _, e := range g.events {
		if at := utc(e.PublishedAt); at.Before(epoch) || numberAt(at.Add(time.Millisecond)) >= maxNumber {
			return fmt.Errorf("event %q of account %q: %w: field publishedAt: must be from 2020 to 2091", e.ID, e.Account, transfer.ErrRecord)
		}
	}
	return nil
}

// An importer is one step of Import.
type importer struct {
	*Store
	tx    pgx.Tx
	given *given

	now      time.Time // the database's
	webhooks map[owned]importedWebhook
	pending  [][]any  // rows of what is pending
	owners   []string // the accounts of these
	first    [][]any  // of them, what was redelivered

	bodiesFrom, attemptsFrom int64 // the marks
}

// An owned is something of an account, by its id.
type owned struct{ account, id string }

// An importedWebhook is a webhook that deliveries are of.
type importedWebhook struct {
	no   int64
	gone bool // it was deleted
}

func (i *importer) run(ctx context.Context) error {
	var erasing bool
	err := i.tx.QueryRow(ctx, i.sql(`select exists (select from storageapi.erasures where account = any($1::text[]))`), i.given.owners).Scan(&erasing)
	if err == nil && erasing {
		err = auth.ErrErasing
	}
	if err != nil {
		return err
	}
	for _, kind := range []struct {
		records int
		add     func(context.Context) error
	}{
		{len(i.given.keys), i.addKeys},
		{len(i.given.webhooks), i.addWebhooks},
		{len(i.given.requests) + len(i.given.alerts) + len(i.given.dedupKeys), i.addRemembered},
		{len(i.given.events), i.addEvents},
		{len(i.given.recoveries), i.addRecoveries},
		{len(i.given.notices), i.addNotices},
	} {
		if kind.records == 0 {
			continue
		}
		if err := kind.add(ctx); err != nil {
			return err
		}
	}
	if scan := i.given.fileScan; scan != nil {
		_, err := i.tx.Exec(ctx, i.sql(`insert into storageapi.marks as m (name, seal) values ('file_scan', $1)
			on conflict (name) do update set seal = excluded.seal where m.seal = ''`), scan.State)
		return err
	}
	return nil
}

// copyTo adds rows to a table.
func (i *importer) copyTo(ctx context.Context, table string, columns []string, rows [][]any) error {
	if len(rows) == 0 {
		return nil
	}
	_, err := i.tx.CopyFrom(ctx, pgx.Identifier{i.options.schema, table}, columns, pgx.CopyFromRows(rows))
	return err
}

// addRemembered adds requests, alerts and deduplication keys, unless they are there.
func (i *importer) addRemembered(ctx context.Context) error {
	batch := &pgx.Batch{}
	for _, r := range i.given.requests {
		kind := keyRequests
		if r.Webhook {
			kind = webhookRequests
		}
		batch.Queue(i.sql(`insert into storageapi.requests (kind, account, name, id, sum, at) values ($1, $2, $3, $4, $5, $6) on conflict do nothing`),
			kind, r.Account, r.IdempotencyKey, r.Made.ID, r.Made.Fingerprint[:], utc(r.At))
	}
	for _, r := range i.given.alerts {
		batch.Queue(i.sql(`insert into storageapi.alerts (account, metric, state, due) values ($1, $2, $3, $4) on conflict do nothing`),
			r.Account, string(r.Metric), r.State, r.Due)
	}
	for _, r := range i.given.dedupKeys {
		batch.Queue(i.sql(`insert into storageapi.notices (account, key, until) values ($1, $2, $3) on conflict do nothing`), r.Account, r.Key, utc(r.Until))
	}
	return i.tx.SendBatch(ctx, batch).Close()
}

// addWebhooks adds webhooks, unless they are there.
func (i *importer) addWebhooks(ctx context.Context) error {
	var ids []string
	for _, r := range i.given.webhooks {
		ids = append(ids, r.ID)
	}
	owners := make(map[string]string)
	rows, err := i.tx.Query(ctx, i.sql(`select id, account from storageapi.webhooks where id = any($1::text[])`), ids)
	if err != nil {
		return err
	}
	var id, account string
	if _, err := pgx.ForEachRow(rows, []any{&id, &account}, func() error { owners[id] = account; return nil }); err != nil {
		return err
	}
	batch := &pgx.Batch{}
	for _, r := range i.given.webhooks {
		switch owner, there := owners[r.ID]; {
		case !there:
			owners[r.ID] = r.Account
			batch.Queue(i.sql(insertWebhook), i.row(&r.Webhook)...)
		case owner != r.Account:
			return fmt.Errorf("webhook %q of account %q: its id %w", r.ID, r.Account, transfer.ErrConflict)
		}
	}
	return i.tx.SendBatch(ctx, batch).Close()
}

// findWebhooks finds the webhooks that events and recoveries are of, among those that were
// deleted, too.
func (i *importer) findWebhooks(ctx context.Context, wanted []owned) error {
	var accounts, ids []string
	asked := make(map[owned]bool)
	for _, w := range wanted {
		if _, found := i.webhooks[w]; !found && !asked[w] {
			asked[w] = true
			accounts, ids = append(accounts, w.account), append(ids, w.id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	rows, err := i.tx.Query(ctx, i.sql(`
		select i.account, i.id, w.no, w.gone from unnest($1::text[], $2::text[]) as i (account, id)
		cross join lateral (
			select no, false as gone from storageapi.webhooks where account = i.account and id = i.id
			union all
			select max(no), true from storageapi.past_webhooks where account = i.account and id = i.id) w
		where w.no is not null order by w.gone desc`), accounts, ids)
	if err != nil {
		return err
	}
	var name owned
	var found importedWebhook
	_, err = pgx.ForEachRow(rows, []any{&name.account, &name.id, &found.no, &found.gone}, func() error { i.webhooks[name] = found; return nil })
	return err
}

// pastWebhook returns the number of a webhook that may be deleted: a new one if the store
// knows nothing of it.
func (i *importer) pastWebhook(ctx context.Context, name owned) (no int64, err error) {
	if known, ok := i.webhooks[name]; ok {
		return known.no, nil
	}
	err = i.tx.QueryRow(ctx, i.sql(`
		insert into storageapi.past_webhooks (no, account, id, deleted_at)
		values (nextval((select tableoid::regclass from storageapi.webhooks_no_seq)), $1, $2, clock_timestamp()) returning no`), name.account, name.id).Scan(&no)
	i.webhooks[name] = importedWebhook{no, true}
	return no, err
}

// addRecoveries adds recoveries, unless they are there.
func (i *importer) addRecoveries(ctx context.Context) error {
	var wanted []owned
	for _, r := range i.given.recoveries {
		wanted = append(wanted, owned{r.Account, r.WebhookID})
	}
	if err := i.findWebhooks(ctx, wanted); err != nil {
		return err
	}
	for _, r := range i.given.recoveries {
		no, err := i.pastWebhook(ctx, owned{r.Account, r.WebhookID})
		if err != nil {
			return err
		}
		next, err := i.numberOf(ctx, r, no)
		if err != nil {
			return err
		}
		added, err := i.tx.Exec(ctx, i.sql(`
			insert into storageapi.recoveries (id, account, webhook, webhook_id, states, from_at, to_at, created_at, recovered, done, next)
			values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) on conflict do nothing`),
			r.ID, r.Account, no, r.WebhookID, texts(r.States), stored(r.From), utc(r.To), utc(r.CreatedAt), r.Recovered, r.Done, next)
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
			return fmt.Errorf("recovery %q of account %q: it, or that its webhook has one under way, %w", r.ID, r.Account, transfer.ErrConflict)
		}
	}
	return nil
}

// numberOf returns the number of the event that a recovery goes on with: after all there are
// if it has looked at them, and 0 if the event is not there.
func (i *importer) numberOf(ctx context.Context, r *transfer.Recovery, webhook int64) (number int64, err error) {
	if r.NextEventID == "" {
		err = i.tx.QueryRow(ctx, i.sql(`select coalesce((select event + 1 from storageapi.event_log order by event desc limit 1), 0)`)).Scan(&number)
		return number, err
	}
	err = i.tx.QueryRow(ctx, i.sql(`
		select coalesce(
			(`+eventOf+`),
			(select max(a.event) from storageapi.attempt_log a cross join lateral (
				select id from storageapi.event_log where event between a.event and a.event order by event limit 1) e where a.webhook = $3 and e.id = $2),
			0)`), r.Account, r.NextEventID, webhook).Scan(&number)
	return number, err
}
