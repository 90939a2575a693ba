package postgres_test

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/store/postgres"
)

// newSchema returns the name of a schema that does not exist. It is dropped at the end of the test.
func newSchema(t *testing.T) string {
	t.Helper()
	p := pool(t)
	name := fmt.Sprintf(oddSchema, os.Getpid(), schemas.Add(1))
	t.Cleanup(func() { drop(t, p, name) })
	return name
}

// oddSchema is a format string, with two numbers, for a difficult schema name. The name contains
// text that is replaced in statements, ends literals of all kinds, and must be quoted.
const oddSchema = `exists storageapi.a'b"$$ %%s \ %d %d`

// migratedSchema returns the name of an empty, fully migrated schema, and the option that selects
// it.
func migratedSchema(t *testing.T) (string, postgres.Option) {
	t.Helper()
	name := newSchema(t)
	option := postgres.InSchema(name)
	if err := postgres.Migrate(t.Context(), pool(t), option); err != nil {
		t.Fatal(err)
	}
	return name, option
}

func TestMigrate_Concurrent_Succeeds(t *testing.T) {
	t.Parallel()
	for range 4 {
		option := postgres.InSchema(newSchema(t))
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				if err := postgres.Migrate(t.Context(), pool(t), option); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		open(t, option)
	}
}

// poolWith returns connections for which the given function replaces a built-in PostgreSQL
// function.
func poolWith(t *testing.T, function string) *pgxpool.Pool {
	t.Helper()
	schema := newSchema(t)
	if _, err := pool(t).Exec(t.Context(), `create schema `+quoted(schema)+`; create function `+quoted(schema)+`.`+function); err != nil {
		t.Fatal(err)
	}
	config := pool(t).Config()
	config.ConnConfig.RuntimeParams["search_path"] = quoted(schema) + ", pg_catalog"
	config.MaxConns = 8
	p, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func TestNew_MissingOrNewerSchema_ReturnsError(t *testing.T) {
	p := pool(t)
	name := newSchema(t)
	option := postgres.InSchema(name)
	if _, err := postgres.New(t.Context(), p, option); !errors.Is(err, postgres.ErrSchema) {
		t.Errorf("New without a schema = %v, want ErrSchema", err)
	}
	if err := postgres.Migrate(t.Context(), p, option); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Exec(t.Context(), fmt.Sprintf(`insert into %s.versions (version, oldest) values (99, 99)`, quoted(name))); err != nil {
		t.Fatal(err)
	}
	if err := postgres.Migrate(t.Context(), p, option); !errors.Is(err, postgres.ErrSchema) {
		t.Errorf("Migrate of a newer schema = %v, want ErrSchema", err)
	}
	if _, err := postgres.New(t.Context(), p, option); !errors.Is(err, postgres.ErrSchema) {
		t.Errorf("New on a newer schema = %v, want ErrSchema", err)
	}
}

func TestSQL(t *testing.T) {
	option := postgres.InSchema(newSchema(t))
	for _, sql := range postgres.SQL(option) {
		if _, err := pool(t).Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	open(t, option)
}

func TestNew_InvalidOption_ReturnsError(t *testing.T) {
	for _, option := range []postgres.Option{postgres.InSchema(""), postgres.InSchema(fmt.Sprintf("%049d", 0)), postgres.PollEvery(0)} {
		if err := postgres.Migrate(t.Context(), pool(t), option); err == nil {
			t.Error("Migrate = nil, want an error")
		}
		if _, err := postgres.New(t.Context(), pool(t), option); err == nil {
			t.Error("New = nil, want an error")
		}
	}
}

// After a statement has waited for a lock, it must see the changes made meanwhile, or it would
// claim deliveries twice. So isolation levels other than read committed are rejected.
func TestNew_OtherIsolationLevel_ReturnsError(t *testing.T) {
	option := inSchema(t)
	for isolation, ok := range map[string]bool{"read committed": true, "repeatable read": false, "serializable": false} {
		config := pool(t).Config()
		config.ConnConfig.RuntimeParams["default_transaction_isolation"] = isolation
		p, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		s, err := postgres.New(t.Context(), p, option)
		if err == nil {
			_ = s.Close()
		}
		if (err == nil) != ok {
			t.Errorf("New with %s = %v", isolation, err)
		}
		p.Close()
	}
}
