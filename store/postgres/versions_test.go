package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
)

// further appends a migration that records oldest as the oldest version that can use the schema.
func further(statement string, oldest int) postgres.Option {
	version := len(postgres.SQL()) + 1
	return postgres.Migrating(fmt.Sprintf("%s;\ninsert into storageapi.versions (version, oldest) values (%d, %d);\n", statement, version, oldest))
}

// A node starts on a newer schema if the schema allows its version, and otherwise refuses.
func TestNew_NewerSchema_StartsIfAllowed(t *testing.T) {
	p, present := pool(t), len(postgres.SQL())
	for name, test := range map[string]struct {
		oldest int
		starts bool
	}{"expanded": {present, true}, "contracted": {present + 1, false}} {
		t.Run(name, func(t *testing.T) {
			schema, option := migratedSchema(t)
			before := open(t, option)
			if err := postgres.Migrate(t.Context(), p, option, further(`alter table storageapi.keys add column more text`, test.oldest)); err != nil {
				t.Fatal(err)
			}
			if err := before.CreateKey(t.Context(), keyNo(1), driver.CreateOptions{}); err != nil {
				t.Errorf("CreateKey of a node that was at work = %v", err)
			}
			migrateErr := postgres.Migrate(t.Context(), p, option)
			s, err := postgres.New(t.Context(), p, option)
			if err == nil {
				defer func() { _ = s.Close() }()
			}
			if test.starts {
				if migrateErr != nil || err != nil {
					t.Fatalf("Migrate = %v, New = %v, want none", migrateErr, err)
				}
				if _, err := s.KeyByHash(t.Context(), keyNo(1).Hash); err != nil {
					t.Error(err)
				}
				return
			}
			want := fmt.Sprintf("it has version %d, which requires nodes of version %[1]d or newer, but this node is version %d; run the release that migrated it, or a newer one", present+1, present)
			for of, err := range map[string]error{"Migrate": migrateErr, "New": err} {
				if !errors.Is(err, postgres.ErrSchema) || !strings.Contains(err.Error(), want) {
					t.Errorf("%s = %v, want ErrSchema and %q", of, err, want)
				}
			}
			if _, err := p.Exec(t.Context(), `select from `+quoted(schema)+`.keys`); err != nil {
				t.Error(err)
			}
		})
	}
}

// A newer schema must have the checksums of all migrations that the node knows.
func TestOlderNodesCompareChecksums(t *testing.T) {
	p, present := pool(t), len(postgres.SQL())
	name, option := migratedSchema(t)
	if err := postgres.Migrate(t.Context(), p, option, further(`select`, present)); err != nil {
		t.Fatal(err)
	}
	in(t, name, fmt.Sprintf(`update versions set checksum = sha256('another') where version = %d`, present))
	if _, err := postgres.New(t.Context(), p, option); !errors.Is(err, postgres.ErrSchema) {
		t.Errorf("New = %v, want ErrSchema", err)
	}
}

// Each migration records the oldest version that can use its result, and no later migration lowers
// it.
func TestMigrations_RecordOldestVersion(t *testing.T) {
	name, _ := migratedSchema(t)
	rows, err := pool(t).Query(t.Context(), `select version, oldest, coalesce(lag(oldest) over (order by version), 1) from `+quoted(name)+`.versions`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	n := 0
	for ; rows.Next(); n++ {
		var version, before int
		var oldest *int
		if err := rows.Scan(&version, &oldest, &before); err != nil {
			t.Fatal(err)
		}
		if oldest == nil || *oldest < before {
			t.Errorf("version %d names %v as the oldest, want one from %d on", version, oldest, before)
		}
	}
	if want := len(postgres.SQL()); n != want || rows.Err() != nil {
		t.Errorf("%d versions, %v, want %d", n, rows.Err(), want)
	}
}

// A migration that waits for a long transaction blocks other transactions only briefly at a time.
// It is applied after the transaction has ended.
func TestMigrate_LongTransaction_BlocksOthersBriefly(t *testing.T) {
	p := pool(t)
	name, option := migratedSchema(t)
	s := open(t, option)
	if err := s.CreateKey(t.Context(), keyNo(1), driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	long, err := p.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = long.Rollback(context.Background()) }()
	if _, err := long.Exec(t.Context(), `select from `+quoted(name)+`.keys`); err != nil {
		t.Fatal(err)
	}
	migrated := make(chan error, 1)
	go func() {
		migrated <- postgres.Migrate(t.Context(), p, option, further(`alter table storageapi.keys add column more text`, 1))
	}()
	eventually(t, "the migration waits", func() (waits bool) {
		err := p.QueryRow(t.Context(), `select exists (select from pg_locks l join pg_class c on c.oid = l.relation
			join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and c.relname = 'keys' and not l.granted)`, name).Scan(&waits)
		if err != nil {
			t.Fatal(err)
		}
		return waits
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // the long transaction outlasts the context
	defer cancel()
	if _, err := s.KeyByHash(ctx, keyNo(1).Hash); err != nil {
		t.Errorf("KeyByHash while a migration waits = %v", err)
	}
	select {
	case err := <-migrated:
		t.Fatalf("Migrate returned before the long transaction: %v", err)
	default:
	}
	if err := long.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-migrated; err != nil {
		t.Error(err)
	}
}

// The statement_timeout of the host's role does not end a long migration.
func TestMigrateOutlastsStatementTimeout(t *testing.T) {
	_, option := migratedSchema(t)
	config := pool(t).Config()
	config.ConnConfig.RuntimeParams["statement_timeout"] = "200ms"
	p, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := postgres.Migrate(t.Context(), p, option, further(`select pg_sleep(0.3)`, 1)); err != nil {
		t.Error(err)
	}
}
