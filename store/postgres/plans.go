package postgres

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// planned returns the connection for single statements, with the settings that they need: see
// lookUp.
func (s *Store) planned(conn *pgxpool.Conn) querier {
	if s.tellsPlans {
		return conn
	}
	return told{conn, lookUp}
}

// A told connection sends another statement before each, in the same round trip.
type told struct {
	conn *pgxpool.Conn
	what string
}

// Query implements [querier].
func (t told) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	batch := &pgx.Batch{}
	batch.Queue(t.what)
	batch.Queue(sql, args...)
	results := t.conn.SendBatch(ctx, batch)
	_, _ = results.Exec() // an error is that of the rows, too
	rows, err := results.Query()
	list := &batchRows{Rows: rows, results: results}
	if err != nil {
		list.Close()
	}
	return list, err
}

// QueryRow implements [querier].
func (t told) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, _ := t.Query(ctx, sql, args...)
	return onlyRow{rows}
}

// batchRows are the last rows of a batch.
type batchRows struct {
	pgx.Rows
	results pgx.BatchResults
	err     error // of the batch
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

// An onlyRow is the only row of rows.
type onlyRow struct{ pgx.Rows }

// Scan implements [pgx.Row].
func (r onlyRow) Scan(fields ...any) error {
	_, err := pgx.CollectExactlyOneRow(r.Rows, func(row pgx.CollectableRow) (struct{}, error) { return struct{}{}, row.Scan(fields...) })
	return err
}
