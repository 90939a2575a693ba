package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
)

// hold begins a transaction that keeps a snapshot of the current state until the test ends.
func hold(t testing.TB, begin func(context.Context, pgx.TxOptions) (pgx.Tx, error)) pgx.Tx {
	t.Helper()
	tx, err := begin(context.Background(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err == nil {
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		_, err = tx.Exec(context.Background(), `select count(*) from pg_class`)
	}
	if err != nil {
		t.Fatal(err)
	}
	return tx
}
