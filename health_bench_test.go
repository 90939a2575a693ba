package storageapi_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks"
)

// BenchmarkHealth measures probes while 1 M deliveries are pending for 10,000 webhooks with working
// receivers. It measures the store query, which runs once a second, and the cost of each probe.
//
//	go test -run '^$' -bench BenchmarkHealth .
func BenchmarkHealth(b *testing.B) {
	accounts, events := 1000, 100_000
	if testing.Short() {
		accounts, events = 10, 1000
	}
	file, err := bolt.Open(filepath.Join(b.TempDir(), "health.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	api, err := storageapi.NewHandler(storageapi.Config{Store: file})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = api.Close() }()
	inParallel(b, accounts*10, func(i int) error {
		return file.CreateWebhook(b.Context(), webhooks.Webhook{
			ID: fmt.Sprintf("wh_%026d", i), Account: fmt.Sprint("acct_", i/10), URL: "https://example.com/hooks", WebhookHealth: driver.WebhookHealth{Active: true, ProvenAt: time.Now()},
			Events: []webhooks.EventType{alerts.TypeBalanceLow}, Secret: signing.NewSecret(),
		}, driver.CreateOptions{})
	})
	inParallel(b, events, func(i int) error {
		return api.Webhooks.Publish(b.Context(), webhooks.Event{Account: fmt.Sprint("acct_", i%accounts), Data: alerts.BalanceLow{Balance: 1, Threshold: 2}})
	})
	b.Run("probe", func(b *testing.B) {
		probe := api.HealthHandler(storageapi.HealthThresholds{})
		r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/", nil)
		b.ReportAllocs()
		for b.Loop() {
			probe.ServeHTTP(httptest.NewRecorder(), r)
		}
	})
}

func inParallel(b *testing.B, n int, do func(i int) error) {
	b.Helper()
	var group sync.WaitGroup
	next := make(chan int, 256)
	for range 256 {
		group.Go(func() {
			for i := range next {
				if err := do(i); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	group.Wait()
}
