package postgres

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// batch returns a batch that begins with the settings.
func (s *Store) batch(base string, more ...string) *pgx.Batch {
	batch := &pgx.Batch{}
	if sql := s.settings(base, more...); sql != "" {
		batch.Queue(sql)
	}
	return batch
}

// with returns a querier on the connection that applies the settings to each statement.
func (s *Store) with(conn *pgxpool.Conn, base string, more ...string) querier {
	if sql := s.settings(base, more...); sql != "" {
		return prefixed{conn, sql}
	}
	return conn
}

// planned is like with, for short statements.
func (s *Store) planned(conn *pgxpool.Conn) querier { return s.with(conn, lookUp) }

// transaction returns options that begin a transaction with its settings in one round trip.
func (s *Store) transaction() pgx.TxOptions {
	if s.options.ownPool {
		return pgx.TxOptions{}
	}
	return pgx.TxOptions{BeginQuery: begin}
}

// prefixed sends its settings before each statement, in the same round trip.
type prefixed struct {
	conn     *pgxpool.Conn
	settings string
}

// Query implements [querier].
func (p prefixed) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	batch := &pgx.Batch{}
	batch.Queue(p.settings)
	batch.Queue(sql, args...)
	results := p.conn.SendBatch(ctx, batch)
	_, _ = results.Exec() // the rows return the error, too
	rows, err := results.Query()
	list := &batchRows{Rows: rows, results: results}
	if err != nil {
		list.Close()
	}
	return list, err
}

// QueryRow implements [querier].
func (p prefixed) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, _ := p.Query(ctx, sql, args...)
	return onlyRow{rows}
}

// batchRows are the rows of the last statement of a batch.
type batchRows struct {
	pgx.Rows
	results pgx.BatchResults
	err     error // from closing the batch
}

func (r *batchRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

func (r *batchRows) Close() {
	r.Rows.Close()
	r.err = r.results.Close()
}

func (r *batchRows) Err() error { return cmp.Or(r.Rows.Err(), r.err) }

// An onlyRow scans the only row of rows.
type onlyRow struct{ pgx.Rows }

// Scan implements [pgx.Row].
func (r onlyRow) Scan(fields ...any) error {
	_, err := pgx.CollectExactlyOneRow(r.Rows, func(row pgx.CollectableRow) (struct{}, error) { return struct{}{}, row.Scan(fields...) })
	return err
}
