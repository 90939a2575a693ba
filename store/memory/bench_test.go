package memory_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/store/storetest"
)

// BenchmarkDeliveries measures the time of a delivery from Enqueue to Settle.
func BenchmarkDeliveries(b *testing.B) {
	for _, c := range []struct{ hooks, claim int }{{1, 1}, {10, 64}, {1000, 64}} {
		b.Run(fmt.Sprintf("webhooks=%d/claim=%d", c.hooks, c.claim), func(b *testing.B) {
			s := memory.New()
			for i := range c.hooks {
				w := driver.Webhook{
					ID: fmt.Sprintf("wh_%026d", i), Account: fmt.Sprint("acct", i), URL: "https://example.com/",
					Events: []driver.EventType{alerts.TypeBalanceLow},
				}
				w.Active = true
				if err := s.CreateWebhook(b.Context(), w, driver.CreateOptions{}); err != nil {
					b.Fatal(err)
				}
			}
			made := 0
			for b.Loop() {
				for range c.claim {
					made++
					e := driver.EncodedEvent{ID: fmt.Sprintf("evt_%026d", made), Account: fmt.Sprint("acct", made%c.hooks), Type: alerts.TypeBalanceLow, Body: []byte("{}")}
					if _, err := s.Enqueue(b.Context(), e); err != nil {
						b.Fatal(err)
					}
				}
				tasks, err := storetest.WorkerOf(s).Claim(b.Context(), c.claim)
				if err != nil || len(tasks) != c.claim {
					b.Fatal(len(tasks), err)
				}
				ends := make([]storetest.Settlement, len(tasks))
				for i, task := range tasks {
					ends[i] = storetest.Settlement{Task: task, Effect: driver.Deliver, Attempt: driver.Attempt{Number: task.Attempt, StartedAt: time.Now()}}
				}
				if _, err := storetest.WorkerOf(s).Settle(b.Context(), ends); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(made), "ns/delivery")
		})
	}
}
