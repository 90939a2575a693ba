package postgres_test

import (
	"context"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/webhooks"
)

// A host passes a Store instead of a path, and closes it after the Handler. It can run any number
// of copies.
func Example() {
	run := func(ctx context.Context) error {
		store, err := postgres.Open(ctx, os.Getenv("DATABASE_URL"))
		if err != nil {
			return err
		}
		defer store.Close()
		api, err := storageapi.NewHandler(storageapi.Config{Store: store})
		if err != nil {
			return err
		}
		defer api.Close()
		return api.Run(ctx) // delivers webhooks, sharing the work with the other copies
	}
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// The event is published only if the host's transaction commits.
func ExampleStore_PublishTx() {
	spend := func(ctx context.Context, pool *pgxpool.Pool, store *postgres.Store, api *storageapi.Handler) error {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `update balances set mist = mist - 1000000000 where account = $1`, "acct_1"); err != nil {
				return err
			}
			return store.PublishTx(ctx, tx, api.Webhooks, webhooks.Event{
				Account: "acct_1",
				Data:    alerts.BalanceLow{Balance: 9_500_000_000, Threshold: 10_000_000_000},
			})
		})
		if err == nil {
			store.Published("acct_1") // deliver the event at once, not at the next poll
		}
		return err
	}
	_ = spend
}
