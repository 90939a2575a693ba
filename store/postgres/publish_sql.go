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

// QueryRow implements [rowQuerier]. Scan makes the query.
func (q sqlQuerier) QueryRow(ctx context.Context, query string, args ...any) pgx.Row {
	return sqlRow(func() (*sql.Rows, error) { return q.tx.QueryContext(ctx, query, args...) })
}

// A sqlRow makes a query when Scan is called, and Scan reads its first row.
type sqlRow func() (*sql.Rows, error)

// Scan implements [pgx.Row].
func (query sqlRow) Scan(to ...any) error {
	rows, err := query()
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	if !rows.Next() {
		return cmp.Or(rows.Err(), pgx.ErrNoRows)
	}
	if err := rows.Scan(to...); err != nil {
		return err
	}
	return rows.Close() // an error of the statement may come after its row
}
