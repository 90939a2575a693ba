package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/store/transfer"
)

// exportNotices selects $3 notices after the number $1, of the account $2 or of all. It looks
// at all that there are.
const exportNotices = `select number, ` + noticeColumns + `, stored_at from storageapi.audit
	where number > $1 and ($2 = '' or account = $2) order by number limit $3`

// A storedNotice is a row that scanNotice reads, with when it was stored after it.
type storedNotice struct {
	pgx.CollectableRow
	at *time.Time
}

// Scan implements [pgx.Row].
func (s storedNotice) Scan(fields ...any) error {
	return s.CollectableRow.Scan(append(fields, s.at)...)
}

// notices reads notices in the order of their numbers.
func (e *exporter) notices(ctx context.Context, after []byte) error {
	no, err := parseNumber(after)
	if err != nil {
		return err
	}
	rows, err := e.tx.Query(ctx, e.sql(exportNotices), no, e.account, e.limit)
	if err != nil {
		return err
	}
	defer rows.Close()
	for more := true; more && rows.Next(); {
		var at time.Time
		n, err := scanNotice(storedNotice{rows, &at})
		if err != nil {
			return err
		}
		more = e.filler.Add(numberRow(int64(n.Number)), &transfer.Notice{Notice: n.Notice, StoredAt: utc(at)})
	}
	return rows.Err()
}

// addNotices adds notices in their order, unless they are there.
func (i *importer) addNotices(ctx context.Context) error {
	batch := &pgx.Batch{}
	for _, r := range i.given.notices {
		n := rowOfNotice(&r.Notice)
		batch.Queue(i.sql(`insert into storageapi.audit (`+noticeColumns+`, stored_at)
			values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17) on conflict (account, id) do nothing`),
			n.Account, n.ID, n.Pending, n.At, n.Action, n.TargetKind, n.TargetID, n.ActorKind, n.ActorID, n.Changed, n.RequestID,
			n.ClientAddress, n.Object, n.Reason, n.Since, n.Until, utc(r.StoredAt))
	}
	return i.tx.SendBatch(ctx, batch).Close()
}
