package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A statement that was planned while its tables were empty is used as it is until the
// server analyses them, minutes after they have filled: as it reads tables through, each
// lookup would. So none is planned to do that. Connections of our own are told once,
// those of the host's with each statement, in the same round trip. (But for what is part
// of a transaction of the host's: that is planned as the rest of it.) Such plans look costly, which is why they are not compiled: that takes a second.
const (
	ownPlans  = `select set_config('enable_seqscan', 'off', false), set_config('jit', 'off', false)`
	indexOnly = `set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)`
)

// planned is for single statements on the connection.
func (s *Store) planned(conn *pgxpool.Conn) querier {
	if s.tellsPlans {
		return conn
	}
	return told{conn, `select ` + indexOnly}
}

// A told connection has another statement before each, in the same round trip.
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
	if _, err := results.Exec(); err != nil {
		_ = results.Close()
		return nil, err
	}
	rows, err := results.Query()
	if err != nil {
		_ = results.Close()
		return nil, err
	}
	return &batchRows{Rows: rows, results: results}, nil
}

// QueryRow implements [querier].
func (t told) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := t.Query(ctx, sql, args...)
	return onlyRow{rows, err}
}

// batchRows are rows that end their batch.
type batchRows struct {
	pgx.Rows
	results pgx.BatchResults
	err     error // of the batch
}

func (r *batchRows) Next() bool {
	more := r.Rows.Next()
	if !more {
		r.Close()
	}
	return more
}

func (r *batchRows) Close() {
	r.Rows.Close()
	if r.results != nil {
		r.err = r.results.Close()
		r.results = nil
	}
}

func (r *batchRows) Err() error {
	if err := r.Rows.Err(); err != nil {
		return err
	}
	return r.err
}

// An onlyRow is the first of rows.
type onlyRow struct {
	rows pgx.Rows
	err  error
}

// Scan implements [pgx.Row].
func (r onlyRow) Scan(fields ...any) error {
	if r.err != nil {
		return r.err
	}
	_, err := pgx.CollectExactlyOneRow(r.rows, func(row pgx.CollectableRow) (struct{}, error) { return struct{}{}, row.Scan(fields...) })
	return err
}
