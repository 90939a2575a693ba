package alerts_test

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// A host reports every balance. The webhook is notified when the balance falls below the
// threshold, and again only after the balance has recovered.
func ExampleAlertService_ReportBalance() {
	ctx := context.Background()
	store := memory.New()
	hooks, err := webhooks.New(store, webhooks.Config{Events: alerts.Events()})
	if err != nil {
		panic(err)
	}
	reports, err := alerts.New(store, hooks, alerts.Config{})
	if err != nil {
		panic(err)
	}
	threshold, _ := alerts.ParseAmount("10")
	webhook, err := hooks.Create(ctx, "acct_1", webhooks.CreateParams{
		URL: "https://example.com/hooks", Events: []webhooks.EventType{alerts.TypeBalanceLow}, Threshold: uint64(threshold),
	})
	if err != nil {
		panic(err)
	}
	for _, text := range []string{"12.5", "9.5", "9", "10", "8"} {
		balance, _ := alerts.ParseAmount(text)
		if err := reports.ReportBalance(ctx, "acct_1", balance); err != nil {
			panic(err)
		}
		page, err := hooks.ListDeliveries(ctx, "acct_1", webhook.ID, webhooks.DeliveryQuery{Limit: 100})
		if err != nil {
			panic(err)
		}
		fmt.Println(balance, "SUI:", len(page.Deliveries), "alerts")
	}
	// Output:
	// 12.5 SUI: 0 alerts
	// 9.5 SUI: 1 alerts
	// 9 SUI: 1 alerts
	// 10 SUI: 1 alerts
	// 8 SUI: 2 alerts
}

// A host with many files lets the service scan them.
func ExampleFileSource() {
	type row struct {
		id, account string
		expires     time.Time
	}
	table := []row{{"file_1", "acct_1", time.Now().Add(time.Hour)}, {"file_2", "acct_1", time.Now().AddDate(1, 0, 0)}}
	files := func(_ context.Context, after string, before time.Time) iter.Seq2[alerts.StoredFile, error] {
		return func(yield func(alerts.StoredFile, error) bool) {
			for _, r := range table { // SELECT … WHERE id > after AND expires < before ORDER BY id
				file := alerts.StoredFile{Account: r.account, Cursor: r.id, File: alerts.ExpiringFile{ID: r.id, ExpiresAt: r.expires}}
				if r.id > after && r.expires.Before(before) && !yield(file, nil) {
					return
				}
			}
		}
	}
	store := memory.New()
	hooks, _ := webhooks.New(store, webhooks.Config{Events: alerts.Events()})
	_, err := alerts.New(store, hooks, alerts.Config{Files: files, FileScanInterval: time.Hour})
	fmt.Println(err) // Run scans
	// Output:
	// <nil>
}

// Amounts are exact, and written as decimal strings.
func ExampleParseAmount() {
	for _, text := range []string{"12.50", "0.000000001", "1e3"} {
		amount, err := alerts.ParseAmount(text)
		fmt.Println(amount, uint64(amount), err)
	}
	// Output:
	// 12.5 12500000000 <nil>
	// 0.000000001 1 <nil>
	// 0 0 amount must be a decimal amount of SUI, such as "12.5"
}
