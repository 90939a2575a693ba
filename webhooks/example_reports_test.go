package webhooks_test

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// A host reports every balance there is. The webhook is told when it goes below the
// threshold, and no more until it has been back.
func ExampleWebhookService_ReportBalance() {
	ctx := context.Background()
	hooks, err := webhooks.New(memory.New(), webhooks.Config{})
	if err != nil {
		panic(err)
	}
	threshold, _ := webhooks.ParseAmount("10")
	webhook, err := hooks.Create(ctx, "acct_1", webhooks.CreateParams{
		URL: "https://example.com/hooks", Events: []webhooks.EventType{webhooks.TypeBalanceLow}, BalanceThreshold: threshold,
	})
	if err != nil {
		panic(err)
	}
	for _, text := range []string{"12.5", "9.5", "9", "10", "8"} {
		balance, _ := webhooks.ParseAmount(text)
		if err := hooks.ReportBalance(ctx, "acct_1", balance); err != nil {
			panic(err)
		}
		page, err := hooks.Deliveries(ctx, "acct_1", webhook.ID, webhooks.DeliveryQuery{Limit: 100})
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

// A host with many files lets the service look through them.
func ExampleFileSource() {
	type row struct {
		id, account string
		expires     time.Time
	}
	table := []row{{"file_1", "acct_1", time.Now().Add(time.Hour)}, {"file_2", "acct_1", time.Now().AddDate(1, 0, 0)}}
	files := func(_ context.Context, after string, before time.Time) iter.Seq2[webhooks.StoredFile, error] {
		return func(yield func(webhooks.StoredFile, error) bool) {
			for _, r := range table { // SELECT … WHERE id > after AND expires < before ORDER BY id
				file := webhooks.StoredFile{Account: r.account, Cursor: r.id, File: webhooks.ExpiringFile{ID: r.id, ExpiresAt: r.expires}}
				if r.id > after && r.expires.Before(before) && !yield(file, nil) {
					return
				}
			}
		}
	}
	_, err := webhooks.New(memory.New(), webhooks.Config{Alerts: webhooks.Alerts{Files: files, FileScanInterval: time.Hour}})
	fmt.Println(err) // Run scans
	// Output:
	// <nil>
}
