package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/storageapi/storageapi/store/postgres"
)

// used has schemas whose tests have ended. Emptying a schema takes a tenth of the time that
// migrating a new one takes. Most tests of the suite are shorter than a migration.
var used schemaPool

// A schemaPool has schemas whose tests have ended, for reuse.
type schemaPool struct {
	mu      sync.Mutex
	schemas []usedSchema
}

type usedSchema struct {
	name   string
	tables []string // tables that the migrations created
	empty  string   // statements that restore the initial rows after all rows were deleted
}

// emptySchema returns an option for a newly migrated or reset schema. The test must change only
// rows.
func emptySchema(t testing.TB) postgres.Option {
	t.Helper()
	return used.take(t, func(string) {})
}

// take returns an option for an empty schema. If it creates a new schema, it calls made with its
// name.
func (p *schemaPool) take(t testing.TB, made func(schema string)) postgres.Option {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	var s usedSchema
	for n := len(p.schemas); n > 0 && s.name == ""; n = len(p.schemas) {
		s, p.schemas = p.schemas[n-1], p.schemas[:n-1]
		if !s.hasItsTables(t) {
			drop(t, pool(t), s.name)
			s = usedSchema{}
		}
	}
	if s.name != "" {
		empty := strings.Join(append(texts(t, emptyTables, s.name), s.empty), "; ")
		_, err := pool(t).Exec(t.Context(), empty)
		for try := 1; try < 5 && isDeadlock(err); try++ { // the server may still run a canceled statement of an earlier test
			_, err = pool(t).Exec(t.Context(), empty)
		}
		if err != nil {
			t.Fatal(err)
		}
	} else {
		s.name = fmt.Sprintf(oddSchema, os.Getpid(), schemas.Add(1))
		if err := postgres.Migrate(t.Context(), pool(t), postgres.InSchema(s.name)); err != nil {
			t.Fatal(err)
		}
		s.tables = tablesIn(t, s.name)
		s.empty = emptying(t, s.name, s.tables)
		made(s.name)
	}
	t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.schemas = append(p.schemas, s)
	})
	return postgres.InSchema(s.name)
}

func isDeadlock(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == "40P01"
}

// dropUsed drops the remaining schemas, for TestMain.
func dropUsed() {
	for _, s := range append(used.schemas, asking.schemas...) {
		_, _ = server.pool.Exec(context.Background(), `drop schema `+quoted(s.name)+` cascade`)
	}
}

// hasItsTables drops the parts that a test has made, and reports whether the schema still has all
// its original tables.
func (s *usedSchema) hasItsTables(t testing.TB) bool {
	t.Helper()
	now := tablesIn(t, s.name)
	for _, table := range now {
		if !slices.Contains(s.tables, table) {
			if _, err := pool(t).Exec(t.Context(), `drop table `+table); err != nil {
				t.Fatal(err)
			}
		}
	}
	return !slices.ContainsFunc(s.tables, func(table string) bool { return !slices.Contains(now, table) })
}

const relations = `select format('%I.%I', nspname, relname) from pg_class c join pg_namespace n on n.oid = relnamespace
	where nspname = $1 and relkind = $2::"char"`

// emptyTables selects the statements that empty the tables of a schema. They delete the rows of
// small tables, because truncating takes much longer for a few rows.
const emptyTables = `
	select format(case when pg_relation_size(c.oid) > 1000000 then 'truncate %I.%I' else 'delete from %I.%I' end, nspname, relname)
	from pg_class c join pg_namespace n on n.oid = relnamespace where nspname = $1 and relkind = 'r' and pg_relation_size(c.oid) > 0`

func tablesIn(t testing.TB, schema string) []string { return texts(t, relations, schema, "r") }

func texts(t testing.TB, query string, args ...any) []string {
	t.Helper()
	rows, _ := pool(t).Query(context.Background(), query, args...)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// emptying returns the statements that insert the rows of the newly migrated, empty schema.
func emptying(t testing.TB, schema string, tables []string) string {
	t.Helper()
	ask := func(query string, args ...any) []string { return texts(t, query, args...) }
	var statements []string
	for _, table := range tables {
		statements = append(statements, ask(`select format('insert into %s select * from json_populate_recordset(null::%1$s, %L)', $1::text, json_agg(kept))
			from `+table+` kept having count(*) > 0`, table)...)
	}
	for _, sequence := range ask(relations, schema, "S") {
		statements = append(statements, "alter sequence "+sequence+" restart")
	}
	return strings.Join(statements, "; ")
}
