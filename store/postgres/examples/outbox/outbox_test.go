package outbox_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	driver "gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/postgres/examples/outbox"
	"github.com/storageapi/storageapi/store/postgres/internal/cluster"
	"github.com/storageapi/storageapi/webhooks"
)

func TestSpend_PublishesOnlyIfTheTransactionCommits(t *testing.T) {
	server, err := cluster.Start()
	if errors.Is(err, cluster.ErrNotInstalled) {
		t.Skip(err)
	}
	check(t, err)
	defer server.Stop()
	pool, err := pgxpool.New(t.Context(), server.DSN("postgres"))
	check(t, err)
	defer pool.Close()
	check(t, postgres.Migrate(t.Context(), pool))
	store, err := postgres.New(t.Context(), pool)
	check(t, err)
	defer store.Close()
	hooks, err := webhooks.New(store, webhooks.Config{Events: alerts.Events()})
	check(t, err)
	host := outbox.Host{Store: store, Hooks: hooks}

	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	orm, err := gorm.Open(driver.New(driver.Config{Conn: db}))
	check(t, err)
	check(t, orm.AutoMigrate(&outbox.Balance{}))

	for name, spend := range map[string]func(ctx context.Context, account string, amount int64) error{
		"database/sql": func(ctx context.Context, account string, amount int64) error {
			return host.Spend(ctx, db, account, amount)
		},
		"GORM": func(ctx context.Context, account string, amount int64) error {
			return host.SpendGORM(ctx, orm, account, amount)
		},
	} {
		t.Run(name, func(t *testing.T) {
			account := "acct_" + name[:4]
			_, err := hooks.Create(t.Context(), account, webhooks.CreateParams{URL: "https://example.com/", Events: []webhooks.EventType{alerts.TypeBalanceLow}})
			check(t, err)
			_, err = db.Exec(`insert into balances (account, amount) values ($1, 15000000000)`, account)
			check(t, err)
			events := func() int {
				page, err := hooks.ListEvents(t.Context(), account, webhooks.EventQuery{Limit: 9})
				check(t, err)
				return len(page.Events)
			}
			check(t, spend(t.Context(), account, 1_000_000_000))
			if n := events(); n != 0 {
				t.Errorf("%d events above the threshold, want none", n)
			}
			check(t, spend(t.Context(), account, 5_000_000_000))
			if n := events(); n != 1 {
				t.Errorf("%d events below the threshold, want 1", n)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := spend(ctx, account, 1); err == nil {
				t.Error("spending with an ended context succeeded")
			}
			_, err = db.Exec(`create or replace function refuse() returns trigger language plpgsql as $$ begin raise 'refused'; end $$;
				create constraint trigger refused after update on balances deferrable initially deferred for each row execute function refuse()`)
			check(t, err)
			if err := spend(t.Context(), account, 1); err == nil {
				t.Error("a transaction whose commit is refused succeeded")
			}
			_, err = db.Exec(`drop trigger refused on balances`)
			check(t, err)
			if n := events(); n != 1 {
				t.Errorf("%d events after failed transactions, want still 1", n)
			}
		})
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
