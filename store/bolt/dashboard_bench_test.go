package bolt_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/dashboard"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/storetest"
	"github.com/storageapi/storageapi/webhooks"
)

// BenchmarkDashboard measures the rendering of pages, without the network. The file has a million
// keys, of one account or of many, and 10,000 deliveries to one webhook. The pages are lists of 50
// keys, of 50 deliveries and of 20 webhooks with their health, and the page of the webhook. The
// target is 10 ms for the lists of 50.
func BenchmarkDashboard(b *testing.B) {
	for _, accounts := range []int{1, 10_000} {
		keys, events := 1_000_000, 10_000
		if testing.Short() {
			keys, events = 10_000, 100
		}
		b.Run(fmt.Sprintf("keys=%d/accounts=%d", keys, accounts), func(b *testing.B) {
			store, err := bolt.Open(filepath.Join(b.TempDir(), "keys.db"))
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = store.Close() }()
			bolt.Fill(b, store, keys, accounts)
			api, err := storageapi.NewHandler(storageapi.Config{Store: store})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = api.Close() }()
			var webhook driver.Webhook
			for range 20 {
				params := webhooks.CreateParams{URL: "https://example.com/", Events: []driver.EventType{alerts.TypeBalanceLow}}
				if webhook.ID != "" {
					params.Events[0] = alerts.TypeFilesExpiring
				}
				made, err := api.Webhooks.Create(b.Context(), "acct_0", params)
				if err != nil {
					b.Fatal(err)
				}
				if webhook.ID == "" {
					webhook = made
				}
			}
			publishAndSettle(b, api, store, events)
			pages, err := dashboard.New(dashboard.Config{API: api, Account: func(*http.Request) (string, error) { return "acct_0", nil }})
			if err != nil {
				b.Fatal(err)
			}
			for _, page := range []struct{ name, path string }{
				{"50 keys", "api-keys"},
				{"50 deliveries", "webhooks/" + webhook.ID + "/deliveries"},
				{"20 webhooks", "webhooks"},
				{"a webhook", "webhooks/" + webhook.ID},
			} {
				b.Run(page.name, func(b *testing.B) {
					var times []time.Duration
					for b.Loop() {
						r, w := httptest.NewRequest(http.MethodGet, "/settings/"+page.path, nil), httptest.NewRecorder()
						start := time.Now()
						pages.ServeHTTP(w, r)
						times = append(times, time.Since(start))
						if w.Code != http.StatusOK {
							b.Fatal(w.Code, w.Body)
						}
					}
					slices.Sort(times)
					b.ReportMetric(float64(times[len(times)/2])/1e6, "p50-ms")
					b.ReportMetric(float64(times[len(times)*99/100])/1e6, "p99-ms")
				})
			}
		})
	}
}

// publishAndSettle publishes events to acct_0 and settles their deliveries. One in ten ends as
// dead.
func publishAndSettle(b *testing.B, api *storageapi.Handler, store *bolt.Store, events int) {
	b.Helper()
	const publishers = 64
	var wg sync.WaitGroup
	for p := range publishers {
		wg.Go(func() {
			for n := p; n < events; n += publishers {
				event := webhooks.Event{Account: "acct_0", Data: alerts.BalanceLow{Balance: 1, Threshold: 2}}
				if err := api.Webhooks.Publish(b.Context(), event); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for left := events; left > 0; {
		tasks, err := storetest.WorkerOf(store).Claim(b.Context(), 1000)
		if err != nil || len(tasks) == 0 {
			b.Fatalf("%d tasks, %v", len(tasks), err)
		}
		var settlements []storetest.Settlement
		for i, task := range tasks {
			attempt := driver.Attempt{Number: 1, StartedAt: time.Now().Add(-time.Duration(i) * time.Minute), Duration: 20 * time.Millisecond, Status: 200, Response: "ok"}
			s := storetest.Settlement{Task: task, Effect: driver.Deliver, Attempt: attempt}
			if i%10 == 0 {
				s.Effect, s.Attempt.Status, s.Attempt.Class, s.Attempt.Error = driver.GiveUp, 500, driver.ClassStatus, "status 500"
			}
			settlements = append(settlements, s)
		}
		if _, err := storetest.WorkerOf(store).Settle(b.Context(), settlements); err != nil {
			b.Fatal(err)
		}
		left -= len(tasks)
	}
}
