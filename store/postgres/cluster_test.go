package postgres_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/postgres/internal/cluster"
)

// server is the shared server of all tests that do not need durability. STORAGEAPI_TEST_POSTGRES
// names it; by default, the tests start a server.
var server struct {
	once sync.Once
	own  *cluster.Cluster
	pool *pgxpool.Pool
	err  error
}

func TestMain(m *testing.M) {
	if dsn := os.Getenv(nodeEnv); dsn != "" {
		runNode(dsn)
		return
	}
	if dsn := os.Getenv(workerEnv); dsn != "" {
		runWorker(dsn)
		return
	}
	if dsn := os.Getenv(ownerEnv); dsn != "" {
		runOwner(dsn)
		return
	}
	if file := os.Getenv(copierEnv); file != "" {
		runCopier(file)
		return
	}
	code := m.Run()
	if server.pool != nil {
		dropUsed()
		server.pool.Close()
	}
	if server.own != nil {
		server.own.Stop()
	}
	os.Exit(code)
}

// pool returns connections to the shared server, or skips the test if there is none.
func pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	server.once.Do(func() {
		dsn := os.Getenv("STORAGEAPI_TEST_POSTGRES")
		if dsn == "" {
			if server.own, server.err = cluster.Start("fsync=off", "full_page_writes=off", "max_prepared_transactions=10"); server.err != nil {
				return
			}
			dsn = server.own.DSN("postgres")
		}
		var config *pgxpool.Config
		if config, server.err = pgxpool.ParseConfig(dsn); server.err == nil {
			config.MaxConns = 40 // shared by parallel tests
			server.pool, server.err = pgxpool.NewWithConfig(context.Background(), config)
		}
	})
	if server.err != nil {
		skip(t, server.err)
	}
	return server.pool
}

// migrated starts a separate server with the settings for the duration of the test, migrates its
// database, and returns connections to it.
func migrated(t testing.TB, settings ...string) (*pgxpool.Pool, *cluster.Cluster) {
	t.Helper()
	c, err := cluster.Start(settings...)
	if err != nil {
		skip(t, err)
	}
	t.Cleanup(c.Stop)
	config, err := pgxpool.ParseConfig(c.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 80
	p, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	if err := postgres.Migrate(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	return p, c
}

// skip skips the test, or fails it in CI.
func skip(t testing.TB, err error) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal(err)
	}
	t.Skipf("%v; or set STORAGEAPI_TEST_POSTGRES to the connection string of a database in which schemas may be created and dropped", err)
}

var schemas atomic.Int64

// inSchema returns an option for an empty schema that exists until the test ends.
func inSchema(t testing.TB) postgres.Option {
	t.Helper()
	name := fmt.Sprintf(oddSchema, os.Getpid(), schemas.Add(1))
	option := postgres.InSchema(name)
	p := pool(t)
	t.Cleanup(func() { drop(t, p, name) })
	if err := postgres.Migrate(t.Context(), p, option); err != nil {
		t.Fatal(err)
	}
	return option
}

func drop(t testing.TB, p *pgxpool.Pool, schema string) {
	if _, err := p.Exec(context.Background(), `drop schema if exists `+quoted(schema)+` cascade`); err != nil {
		t.Error(err)
	}
}

func quoted(schema string) string { return pgx.Identifier{schema}.Sanitize() }

// open returns a store in a schema.
func open(t testing.TB, options ...postgres.Option) *postgres.Store {
	t.Helper()
	s, err := postgres.New(t.Context(), pool(t), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}
