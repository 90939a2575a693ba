// Package outbox publishes events in the transactions of database/sql and of GORM: an event is
// delivered only if its transaction commits.
//
//	host := outbox.Host{Store: store, Hooks: api.Webhooks}
//	err := host.Spend(ctx, db, "acct_1", 1_000_000_000)
package outbox

import (
	"context"
	"database/sql"

	"gorm.io/gorm"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/webhooks"
)

// A Host is a service that keeps balances, and notifies its customers when a balance is low.
type Host struct {
	Store *postgres.Store
	Hooks *webhooks.WebhookService // Webhooks of the storageapi.Handler
}

const threshold = 10_000_000_000

// Spend takes an amount from a balance, with database/sql. The driver is pgx's: sql.Open("pgx", …)
// or stdlib.OpenDBFromPool.
func (h *Host) Spend(ctx context.Context, db *sql.DB, account string, amount int64) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	var left int64
	if err := tx.QueryRowContext(ctx, `update balances set amount = amount - $2 where account = $1 returning amount`, account, amount).Scan(&left); err != nil {
		return err
	}
	if left < threshold {
		if err := h.Store.PublishSQLTx(ctx, tx, h.Hooks, low(account, left)); err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	h.Store.Published(account) // delivers at once, not at the next poll
	return nil
}

// A Balance is a row of the table balances.
type Balance struct {
	Account string `gorm:"primaryKey"`
	Amount  int64
}

// SpendGORM is like Spend, with GORM.
func (h *Host) SpendGORM(ctx context.Context, db *gorm.DB, account string, amount int64) error {
	err := db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		balance := Balance{Account: account}
		if err := tx.Model(&balance).Update("amount", gorm.Expr("amount - ?", amount)).Error; err != nil {
			return err
		}
		if err := tx.First(&balance).Error; err != nil || balance.Amount >= threshold {
			return err
		}
		return h.Store.PublishSQLTx(ctx, tx.Statement.ConnPool, h.Hooks, low(account, balance.Amount))
	})
	if err == nil {
		h.Store.Published(account)
	}
	return err
}

func low(account string, left int64) webhooks.Event {
	return webhooks.Event{Account: account, Data: alerts.BalanceLow{Balance: alerts.Amount(left), Threshold: threshold}}
}
