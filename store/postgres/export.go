package postgres

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/transfer"
)

// Accounts implements [transfer.Store]. It steps from account to account in the indexes, so its
// cost does not depend on the size of accounts.
func (s *Store) Accounts(ctx context.Context, after string, limit int) ([]string, error) {
	return collect(ctx, s, scan[string], listAccounts, after, limit)
}

var listAccounts = query("list_accounts")

// afterAll is a string that sorts after all accounts.
var afterAll = strings.Repeat("\U0010FFFF", 33)

// maxRead is the maximum number of rows that one statement reads; no page has more.
const maxRead = 1 << 13

// Export implements [transfer.Store]. Each page is a short transaction, so that it does not delay
// vacuuming. Without a deadline, a page takes at most a minute.
//
// In the export of a single account, events without deliveries follow all other events.
func (s *Store) Export(ctx context.Context, account, after string, limit int) (page transfer.Page, err error) {
	ctx, cancel := within(ctx, moving)
	defer cancel()
	err = s.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		return pgx.BeginTxFunc(ctx, conn, exportSnapshot, func(tx pgx.Tx) error {
			page, err = transfer.Fill(after, limit, func(f *transfer.Filler, kind transfer.Kind, after []byte) error {
				e := exporter{Store: s, tx: tx, account: account, limit: min(limit, maxRead), filler: f}
				return e.kind(ctx, kind, after)
			})
			return err
		})
	})
	if err != nil {
		return transfer.Page{}, err
	}
	return page, nil
}

// An exporter reads the rows of one kind.
type exporter struct {
	*Store
	tx      pgx.Tx
	account string // empty means all accounts
	limit   int
	filler  *transfer.Filler

	at   place // place of the last row; the statements' arguments point to it
	full bool  // whether the page is full
}

// A place is a row's position among the rows of its kind: its account, a name that is unique within
// the account, and a number. Some kinds do not use all three.
type place struct {
	account, name string
	number        int64
	until         time.Time // number as a time, for kinds whose number is in Unix milliseconds
}

// An exportedRow is a row and its place. The record is nil if the row is unreadable or skipped.
type exportedRow struct {
	at         place
	record     transfer.Record
	unreadable string
}

// begin sets e.at to the place encoded in after, which is the last row of the previous page. If
// after is nil, the export begins with the first row.
func (e *exporter) begin(after []byte) (err error) {
	if e.at = (place{account: e.account, number: -1}); after == nil {
		return nil
	}
	parts := strings.Split(string(after), "\x00")
	if len(parts) != 3 || !utf8.Valid(after) {
		return transfer.ErrPosition
	}
	e.at.account, e.at.name = parts[0], parts[1]
	if e.at.number, err = strconv.ParseInt(parts[2], 10, 64); err != nil {
		return transfer.ErrPosition
	}
	e.at.until = time.UnixMilli(e.at.number)
	return nil
}

// put adds a row to the page, and reports whether there is room for more.
func (e *exporter) put(row exportedRow) (more bool) {
	e.at = row.at
	position := []byte(row.at.account + "\x00" + row.at.name + "\x00" + strconv.FormatInt(row.at.number, 10))
	switch {
	case row.record != nil:
		more = e.filler.Add(position, row.record)
	case row.unreadable != "":
		more = e.filler.Unreadable(position, row.unreadable)
	default:
		more = e.filler.Skip(position)
	}
	e.full = !more
	return more
}

// fill adds batches of rows to the page until it is full or no rows are left.
func (e *exporter) fill(read func() ([]exportedRow, error)) error {
	for {
		rows, err := read()
		if err != nil || len(rows) == 0 {
			return err
		}
		for _, row := range rows {
			if !e.put(row) {
				return nil
			}
		}
	}
}

// rows adds the rows of a statement to the page.
func (e *exporter) rows(ctx context.Context, scan func(pgx.Row) (exportedRow, error), sql string, args ...any) error {
	return e.fill(func() ([]exportedRow, error) { return rowsOf(ctx, e.tx, scan, e.sql(sql), args...) })
}

// kind adds rows of a kind to the page until it is full. It begins after the row that the parameter
// after encodes.
func (e *exporter) kind(ctx context.Context, kind transfer.Kind, after []byte) error {
	if err := e.begin(after); err != nil {
		return err
	}
	at, last := &e.at, cmp.Or(e.account, afterAll)
	switch kind {
	case transfer.KindKey:
		return e.rows(ctx, exportedKey, exportKeys, &at.account, &at.name, last, e.limit)
	case transfer.KindWebhook:
		return e.rows(ctx, e.exportedWebhook, exportWebhooks, &at.account, &at.name, last, e.limit)
	case transfer.KindRequest:
		return e.rows(ctx, exportedRequest, exportRequests, &at.account, &at.name, &at.number, last, e.limit)
	case transfer.KindAlert:
		return e.rows(ctx, exportedAlert, exportAlerts, &at.account, &at.name, last, e.limit)
	case transfer.KindDedupKey:
		return e.rows(ctx, exportedDedupKey, exportDedupKeys, &at.account, &at.name, &at.until, last, e.limit)
	case transfer.KindScan:
		return e.rows(ctx, exportedScan, exportScan, &at.name, e.account)
	case transfer.KindEvent:
		return e.events(ctx)
	case transfer.KindRecovery:
		return e.rows(ctx, exportedRecovery, exportRecoveries, &at.number, e.account, e.limit)
	case transfer.KindAuditEntry:
		return e.rows(ctx, exportedAuditEntry, exportAuditEntries, &at.number, e.account, e.limit)
	}
	return nil
}

// Each of these statements selects the rows of one kind that follow a place, up to a last account
// and a maximum number of rows. Statements that cannot read in account order have an account
// parameter instead; empty means all accounts.
const (
	exportKeys = `select ` + keyColumns + keyUses + `,
		(select u.at from storageapi.key_uses u where u.account = k.account and u.id = k.id and u.hash = k.hash)
		from storageapi.keys k where k.next is null and (k.account, k.id) > ($1, $2) and k.account <= $3 order by k.account, k.id limit $4`

	exportWebhooks = `select ` + webhookColumns + `
		from storageapi.webhooks w where (w.account, w.id) > ($1, $2) and w.account <= $3 order by w.account, w.id limit $4`

	exportDedupKeys = `select account, key, until from storageapi.dedup_keys
		where (account, key, until) > ($1, $2, $3) and account <= $4 order by account, key, until limit $5`

	exportScan = `select name, seal from storageapi.marks where name = 'scan' and name > $1 and $2 = '' and seal <> ''`

	exportAuditEntries = `select number, ` + entryColumns + `, stored_at from storageapi.audit
		where number > $1 and ($2 = '' or account = $2) order by number limit $3`
)

var (
	exportRequests   = query("export_requests")
	exportAlerts     = query("export_alerts")
	exportRecoveries = query("export_recoveries")
)

func exportedKey(row pgx.Row) (exportedRow, error) {
	r := &transfer.Key{}
	key, err := scanKey(row, true, (*instant)(&r.UsedAt))
	r.Key = key
	return exportedRow{at: place{account: r.Account, name: r.ID}, record: r}, err
}

func (s *Store) exportedWebhook(row pgx.Row) (exportedRow, error) {
	var r webhookRow
	if err := row.Scan(r.columns()...); err != nil {
		return exportedRow{}, err
	}
	at := place{account: r.Account, name: r.ID}
	w, err := s.webhook(&r)
	if err != nil {
		return exportedRow{at: at, unreadable: err.Error()}, nil
	}
	return exportedRow{at: at, record: &transfer.Webhook{Webhook: w}}, nil
}

func exportedRequest(row pgx.Row) (exportedRow, error) {
	r := &transfer.Request{}
	var kind int64
	var sum []byte
	err := row.Scan(&r.Account, &r.IdempotencyKey, &kind, &r.Made.ID, &sum, (*instant)(&r.At), &r.KeyID)
	r.Webhook = kind == webhookRequests
	copy(r.Made.Fingerprint[:], sum)
	return exportedRow{at: place{account: r.Account, name: r.IdempotencyKey, number: kind}, record: r}, err
}

func exportedAlert(row pgx.Row) (exportedRow, error) {
	r := &transfer.Alert{}
	err := row.Scan(&r.Account, &r.Series, &r.State, &r.Due)
	return exportedRow{at: place{account: r.Account, name: r.Series}, record: r}, err
}

func exportedDedupKey(row pgx.Row) (exportedRow, error) {
	r := &transfer.DedupKey{}
	err := row.Scan(&r.Account, &r.Key, (*instant)(&r.Until))
	return exportedRow{at: place{r.Account, r.Key, r.Until.UnixMilli(), r.Until}, record: r}, err
}

func exportedScan(row pgx.Row) (exportedRow, error) {
	r, at := &transfer.Scan{}, place{}
	err := row.Scan(&at.name, &r.State)
	return exportedRow{at: at, record: r}, err
}

func exportedRecovery(row pgx.Row) (exportedRow, error) {
	r, at := &transfer.Recovery{}, place{}
	err := row.Scan(&at.number, &r.ID, &r.Account, &r.WebhookID, &r.States, (*instant)(&r.From), (*instant)(&r.To), (*instant)(&r.CreatedAt),
		&r.Recovered, &r.Done, &r.NextEventID)
	return exportedRow{at: at, record: r}, err
}

func exportedAuditEntry(row pgx.Row) (exportedRow, error) {
	var n audit.Numbered
	r := &transfer.AuditEntry{}
	err := row.Scan(append(entryFields(&n), (*instant)(&r.StoredAt))...)
	r.Entry = n.Entry
	return exportedRow{at: place{number: int64(n.Number)}, record: r}, err
}
