package postgres

import (
	"cmp"
	"context"
	"encoding/binary"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/store/transfer"
	"github.com/storageapi/storageapi/webhooks"
)

// Accounts implements [transfer.Store]. It goes from account to account in the indexes,
// however much each has.
func (s *Store) Accounts(ctx context.Context, after string, limit int) (accounts []string, err error) {
	err = s.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := s.planned(conn).Query(ctx, s.sql(listAccounts), after, limit)
		if err == nil {
			accounts, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		return err
	})
	return accounts, err
}

var listAccounts = query("list_accounts")

// afterAll comes after all accounts.
var afterAll = strings.Repeat("\U0010FFFF", 33)

// Export implements [transfer.Store]. A page is a short transaction, so that nothing is kept
// from being vacuumed. One that has no deadline takes a minute at most.
//
// Of a single account, events without deliveries come after all others.
func (s *Store) Export(ctx context.Context, account, after string, limit int) (page transfer.Page, err error) {
	ctx, cancel := within(ctx, moving)
	defer cancel()
	err = s.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		return pgx.BeginTxFunc(ctx, conn, snapshot, func(tx pgx.Tx) error {
			page, err = transfer.Fill(after, limit, func(f *transfer.Filler, kind transfer.Kind, after []byte) error {
				e := exporter{Store: s, tx: tx, account: account, limit: limit, filler: f}
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

// An exporter reads the rows of a kind.
type exporter struct {
	*Store
	tx      pgx.Tx
	account string // empty: all
	limit   int
	filler  *transfer.Filler
}

// kind reads the rows of a kind after that row, until the page is full.
func (e *exporter) kind(ctx context.Context, kind transfer.Kind, after []byte) error {
	switch kind {
	case transfer.KindKey:
		return e.byName(ctx, after, exportKeys, e.addKey)
	case transfer.KindWebhook:
		return e.byName(ctx, after, exportWebhooks, e.addWebhook)
	case transfer.KindRequest:
		return e.byName(ctx, after, exportRequests, e.addRequest)
	case transfer.KindAlert:
		return e.byName(ctx, after, exportAlerts, e.addAlert)
	case transfer.KindDedupKey:
		return e.byName(ctx, after, exportDedupKeys, e.addDedupKey)
	case transfer.KindFileScan:
		return e.fileScan(ctx, after)
	case transfer.KindEvent:
		return e.events(ctx, after)
	case transfer.KindRecovery:
		return e.recoveries(ctx, after)
	case transfer.KindNotice:
		return e.notices(ctx, after)
	}
	return nil
}

// What byName selects: $4 rows after the names $1 and $2, of accounts up to $3. What has a
// third name has its place in the order of $5.
const (
	exportKeys = `select k.account, k.id, '', ` + keyColumns + keyUses + `,
		(select u.at from storageapi.key_uses u where u.account = k.account and u.id = k.id and u.hash = k.hash)
		from storageapi.keys k where k.next is null and (k.account, k.id) > ($1, $2) and k.account <= $3 and $5 = '' order by k.account, k.id limit $4`

	exportWebhooks = `select w.account, w.id, '', ` + webhookColumns + `
		from storageapi.webhooks w where (w.account, w.id) > ($1, $2) and w.account <= $3 and $5 = '' order by w.account, w.id limit $4`

	exportDedupKeys = `select account, key, '', until from storageapi.notices
		where (account, key, until) > ($1, $2, $5) and account <= $3 order by account, key, until limit $4`
)

var (
	exportRequests   = query("export_requests")
	exportAlerts     = query("export_alerts")
	exportRecoveries = query("export_recoveries")
)

// A row of a kind that has names.
type namedRow struct {
	pgx.Rows
	name [3]string // the account, and what tells it apart within it
}

// scan reads the names and what follows them.
func (r *namedRow) scan(fields ...any) error {
	return r.Rows.Scan(append([]any{&r.name[0], &r.name[1], &r.name[2]}, fields...)...)
}

// position returns the row as a page's end has it.
func (r *namedRow) position() []byte { return []byte(strings.Join(r.name[:], "\x00")) }

// byName reads rows by the names that they have, from after that row on.
func (e *exporter) byName(ctx context.Context, after []byte, sql string, add func(*namedRow) (more bool, err error)) error {
	row := namedRow{name: [3]string{e.account}}
	if after != nil {
		parts := strings.Split(string(after), "\x00")
		if len(parts) != len(row.name) || !utf8.Valid(after) {
			return transfer.ErrPosition
		}
		copy(row.name[:], parts)
	}
	for more, n := true, 1; more && n > 0; {
		var third any = row.name[2]
		if sql == exportDedupKeys {
			millis, err := strconv.ParseInt(cmp.Or(row.name[2], "0"), 10, 64)
			if err != nil {
				return transfer.ErrPosition
			}
			third = time.UnixMilli(millis)
		}
		rows, err := e.tx.Query(ctx, e.sql(sql), row.name[0], row.name[1], cmp.Or(e.account, afterAll), e.limit, third)
		if err != nil {
			return err
		}
		row.Rows = rows
		for n = 0; more && err == nil && rows.Next(); n++ {
			more, err = add(&row)
		}
		rows.Close()
		if err == nil {
			err = rows.Err()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (e *exporter) addKey(row *namedRow) (more bool, err error) {
	var used *time.Time
	key, err := scanKey(namedScan{row}, true, &used)
	if err != nil {
		return false, err
	}
	return e.filler.Add(row.position(), &transfer.Key{Key: key, UsedAt: loaded(used)}), nil
}

// A namedScan is the rest of a named row, as a row.
type namedScan struct{ row *namedRow }

// Scan implements [pgx.Row].
func (s namedScan) Scan(fields ...any) error { return s.row.scan(fields...) }

func (e *exporter) addWebhook(row *namedRow) (more bool, err error) {
	var r webhookRow
	if err := row.scan(r.fields()...); err != nil {
		return false, err
	}
	w, err := e.webhook(&r)
	if err != nil {
		return e.filler.Unreadable(row.position(), err.Error()), nil
	}
	return e.filler.Add(row.position(), &transfer.Webhook{Webhook: w}), nil
}

func (e *exporter) addRequest(row *namedRow) (more bool, err error) {
	r := &transfer.Request{}
	var sum []byte
	if err := row.scan(&r.Made.ID, &sum, &r.At); err != nil {
		return false, err
	}
	r.Account, r.IdempotencyKey, r.Webhook, r.At = row.name[0], row.name[1], row.name[2] == strconv.Itoa(webhookRequests), utc(r.At)
	copy(r.Made.Fingerprint[:], sum)
	return e.filler.Add(row.position(), r), nil
}

func (e *exporter) addAlert(row *namedRow) (more bool, err error) {
	r := &transfer.Alert{}
	if err := row.scan(&r.State, &r.Due); err != nil {
		return false, err
	}
	r.Account, r.Metric = row.name[0], webhooks.Metric(row.name[1])
	return e.filler.Add(row.position(), r), nil
}

func (e *exporter) addDedupKey(row *namedRow) (more bool, err error) {
	r := &transfer.DedupKey{}
	if err := row.scan(&r.Until); err != nil {
		return false, err
	}
	r.Account, r.Key, r.Until = row.name[0], row.name[1], utc(r.Until)
	row.name[2] = strconv.FormatInt(r.Until.UnixMilli(), 10)
	return e.filler.Add(row.position(), r), nil
}

func (e *exporter) fileScan(ctx context.Context, after []byte) error {
	if e.account != "" || after != nil {
		return nil
	}
	rows, err := e.tx.Query(ctx, e.sql(`select seal from storageapi.marks where name = 'file_scan' and seal <> ''`))
	if err != nil {
		return err
	}
	states, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	for _, state := range states {
		e.filler.Add([]byte("file_scan"), &transfer.FileScan{State: state})
	}
	return err
}

// recoveries reads recoveries in the order of their turns.
func (e *exporter) recoveries(ctx context.Context, after []byte) error {
	no, err := parseNumber(after)
	if err != nil {
		return err
	}
	for more, n := true, 1; more && n > 0; {
		rows, err := e.tx.Query(ctx, e.sql(exportRecoveries), no, e.account, e.limit)
		if err != nil {
			return err
		}
		for n = 0; more && err == nil && rows.Next(); n++ {
			r := &transfer.Recovery{}
			var states []string
			var from *time.Time
			err = rows.Scan(&no, &r.ID, &r.Account, &r.WebhookID, &states, &from, &r.To, &r.CreatedAt, &r.Recovered, &r.Done, &r.NextEventID)
			r.States, r.From, r.To, r.CreatedAt = typed[webhooks.DeliveryState](states), loaded(from), utc(r.To), utc(r.CreatedAt)
			more = err == nil && e.filler.Add(numberRow(no), r)
		}
		rows.Close()
		if err == nil {
			err = rows.Err()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// numberRow and parseNumber are a row that a number tells apart.
func numberRow(no int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(no)) }

func parseNumber(row []byte) (no int64, err error) {
	switch len(row) {
	case 0:
		return -1, nil
	case 8:
		return int64(binary.BigEndian.Uint64(row)), nil
	}
	return 0, transfer.ErrPosition
}
