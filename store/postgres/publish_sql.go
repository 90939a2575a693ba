package postgres

import (
	"cmp"
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/webhooks"
)

// A SQLTx is an open transaction of package database/sql: a [*sql.Tx], or the same behind an ORM.
// Its driver must be pgx's (github.com/jackc/pgx/v5/stdlib).
type SQLTx interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// PublishSQLTx is like [Store.PublishTx], for hosts that use database/sql, or an ORM on top of it:
//
//	tx.Tx                  // *bun.Tx
//	tx.Statement.ConnPool  // *gorm.DB in Transaction
//	tx                     // *ent.Tx with the feature sql/execquery
//
// Its transaction must be in the same database as the store.
func (s *Store) PublishSQLTx(ctx context.Context, tx SQLTx, service *webhooks.WebhookService, event webhooks.Event) error {
	encoded, err := service.Encode(ctx, event)
	if err != nil {
		return err
	}
	_, err = s.enqueueIn(ctx, sqlQuerier{tx}, &encoded)
	return err
}

// A sqlQuerier makes queries of a SQLTx.
type sqlQuerier struct{ tx SQLTx }

// QueryRow implements [rowQuerier].
func (q sqlQuerier) QueryRow(ctx context.Context, query string, args ...any) pgx.Row {
	rows, err := q.tx.QueryContext(ctx, query, args...)
	return sqlRow{rows, err}
}

// A sqlRow is the first row of a query, or its error.
type sqlRow struct {
	rows *sql.Rows
	err  error
}

// Scan implements [pgx.Row].
func (r sqlRow) Scan(to ...any) error {
	if r.err != nil {
		return r.err
	}
	defer func() { _ = r.rows.Close() }()
	if !r.rows.Next() {
		return cmp.Or(r.rows.Err(), pgx.ErrNoRows)
	}
	if err := r.rows.Scan(to...); err != nil {
		return err
	}
	return r.rows.Close() // an error of the statement may come after its row
}
