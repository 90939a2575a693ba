package bolt_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/webhooks"
)

// BenchmarkReport measures reports that change nothing; a host makes one on every download. The
// floor is a map with a lock, from the account to its last report, which a host might use instead.
func BenchmarkReport(b *testing.B) {
	accounts := 1000
	if testing.Short() {
		accounts = 100
	}
	store, err := bolt.Open(filepath.Join(b.TempDir(), "storage.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	hooks, err := webhooks.New(store, webhooks.Config{Events: alerts.Events()})
	if err != nil {
		b.Fatal(err)
	}
	service, err := alerts.New(store, hooks, alerts.Config{})
	if err != nil {
		b.Fatal(err)
	}
	ctx, names := b.Context(), make([]string, accounts)
	for i := range names {
		names[i] = fmt.Sprintf("acct_%06d", i)
		for range 3 {
			_, err := hooks.Create(ctx, names[i], webhooks.CreateParams{
				URL: "https://example.com/", Events: alerts.EventTypes(), Threshold: 10e9,
			})
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	type report struct {
		name string
		do   func(account string, i int) error
	}
	reports := []report{
		{"balance/same", func(account string, _ int) error { return service.ReportBalance(ctx, account, 20e9) }},
		{"balance/moving", func(account string, i int) error {
			return service.ReportBalance(ctx, account, 20e9-alerts.Amount(i%100_000_000))
		}},
		{"bandwidth", func(account string, i int) error {
			return service.ReportBandwidth(ctx, account, int64(i), 1<<40, "2020-11")
		}},
		{"transactions/late", func(account string, i int) error {
			return service.ReportTransactions(ctx, account, int64(i), 10, "2020-10")
		}},
	}
	for _, account := range names {
		for _, r := range reports[:3] {
			if err := r.do(account, 0); err != nil {
				b.Fatal(err)
			}
		}
		if err := service.ReportTransactions(ctx, account, 0, 10, "2020-11"); err != nil {
			b.Fatal(err)
		}
	}
	var mu sync.Mutex
	last := make(map[string]int)
	reports = append(reports, report{"floor", func(account string, i int) error {
		mu.Lock()
		defer mu.Unlock()
		last[account] = i
		return nil
	}})
	for _, r := range reports {
		b.Run(r.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if err := r.do(names[i*7%accounts], i); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
