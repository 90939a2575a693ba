package postgres_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/storetest"
)

// TestStoreRetries runs the store tests on a database in which one in four transactions that change
// data fails, during a statement or at the commit. Half of them fail with SQLSTATE 40001, as after
// a conflict, and half with 23514, as if the partition were too new. The store must work as usual.
func TestStoreRetries(t *testing.T) {
	if testing.Short() {
		t.Skip("what changes something, once more")
	}
	storetest.Run(t, func(t *testing.T) store.Store {
		if group := strings.Split(t.Name(), "/")[1]; !slices.Contains(changing, group) {
			t.Skip("another group tests that")
		}
		return open(t, askingAgain(t))
	})
}

// changing lists groups of storetest tests. Together they call each method that changes data.
var changing = []string{
	"CreateKey", "UpdateKey", "DeleteKey", "RecordKeyUse", "UpdateWebhook", "DeleteWebhook", "EnqueueRaces", "AlertRaces", "UpdateScan", "DedupKeys",
	"Attempts", "Settle", "Failing", "Off", "Redeliver", "AdvanceRecovery", "Purge", "DeliveryRaces", "EraseAccount", "AuditEntriesOfChanges", "Transfer",
}

// asking has schemas whose tables have triggers that call ask_again.
var asking schemaPool

// askingAgain returns an option for an empty schema in which one in four transactions that change
// data fails.
func askingAgain(t *testing.T) postgres.Option {
	t.Helper()
	exec := func(schema, sql string) {
		t.Helper()
		if _, err := pool(t).Exec(context.Background(), strings.ReplaceAll(sql, "storageapi.", quoted(schema)+".")); err != nil {
			t.Error(err)
		}
	}
	const quiet = `create or replace function storageapi.ask_again() returns trigger language plpgsql as $$ begin return null; end $$;`
	option := asking.take(t, func(schema string) {
		rows, _ := pool(t).Query(t.Context(), `
			select relname::text from pg_class
			where relnamespace = $1::regnamespace and relkind in ('r', 'p') and not relispartition and relname <> 'versions'`, quoted(schema))
		tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		made := quiet
		for _, table := range tables {
			made += strings.ReplaceAll(`
				create trigger ask_again after insert or update or delete on storageapi.{table} for each statement execute function storageapi.ask_again(0);
				create constraint trigger ask_at_commit after insert or update or delete on storageapi.{table} deferrable initially deferred
					for each row execute function storageapi.ask_again(1);`, "{table}", table)
		}
		exec(schema, made)
	})
	schema := postgres.SchemaOf(option)
	exec(schema, `
		create or replace function storageapi.ask_again() returns trigger language plpgsql as $$
		begin
			if pg_current_xact_id()::text::bigint % 8 = tg_argv[0]::bigint then
				raise exception 'restart transaction'
					using errcode = case when pg_current_xact_id()::text::bigint % 16 < 8 then '40001' else '23514' end;
			end if;
			return null;
		end
		$$;`)
	t.Cleanup(func() { exec(schema, quiet) })
	return option
}
