package main

import (
	"context"
	"fmt"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/webhooks"
)

// A reported is a report that a host makes.
type reported struct {
	what  string
	tells webhooks.EventType // event that the report causes; empty means none
	do    func() error
}

// reports returns reports that cause each of the six events. Reports of usage are for the period
// that number identifies.
func reports(ctx context.Context, reporter *alerts.AlertService, number int) []reported {
	const sui, gib, day = 1_000_000_000, 1 << 30, 24 * time.Hour
	period := fmt.Sprintf("period-%06d", number) // usually a month, such as "2026-11"
	balance := func(amount alerts.Amount) func() error {
		return func() error { return reporter.ReportBalance(ctx, account, amount) }
	}
	bandwidth := func(used int64) func() error {
		return func() error { return reporter.ReportBandwidth(ctx, account, used, 100*gib, period) }
	}
	transactions := func(used int64) func() error {
		return func() error { return reporter.ReportTransactions(ctx, account, used, 10_000, period) }
	}
	now := time.Now()
	files := []alerts.ExpiringFile{
		{ID: "file_1", Name: "report.pdf", EnvironmentID: "production", ExpiresAt: now.Add(6 * day)},
		{ID: "file_2", Name: "archive.zip", EnvironmentID: "production", ExpiresAt: now.Add(365 * day)},
	}
	return []reported{
		{"two files", alerts.TypeFilesExpiring, func() error { return reporter.ReportFiles(ctx, account, files) }},
		{"a balance of 100 SUI", "", balance(100 * sui)},
		{"20.25 SUI", alerts.TypeBalanceLow, balance(20.25 * sui)},
		{"50 of 100 GiB of bandwidth", "", bandwidth(50 * gib)},
		{"80 GiB", alerts.TypeBandwidthLimitApproaching, bandwidth(80 * gib)},
		{"100 GiB", alerts.TypeBandwidthLimitReached, bandwidth(100 * gib)},
		{"8,000 of 10,000 transactions", alerts.TypeTransactionsLimitApproaching, transactions(8_000)},
		{"10,000", alerts.TypeTransactionsLimitReached, transactions(10_000)},
	}
}
