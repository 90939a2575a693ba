package bolt_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/storetest"
)

// BenchmarkFailed measures how long it takes to list the 11 failed deliveries of one of ten
// webhooks, in files with different numbers of deliveries. Filling a file with 10 M deliveries
// takes minutes and 3 GB of disk:
//
//	go test -run '^$' -bench Failed -timeout 1h ./store/bolt
func BenchmarkFailed(b *testing.B) {
	const dead, lanes = 11, 10
	for _, deliveries := range []int{100_000, 10_000_000} {
		b.Run(fmt.Sprint("deliveries=", deliveries), func(b *testing.B) {
			if testing.Short() && deliveries > 100_000 {
				b.Skip("fills a large file: run without -short")
			}
			s, err := bolt.Open(filepath.Join(b.TempDir(), "failed.db"))
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			createWebhooks(b, s, 1, lanes)
			step, next := deliveries/lanes/dead, 0
			id, first := "", 0
			for done := 0; done < deliveries; {
				if first < deliveries/lanes {
					n := min(10_000, deliveries/lanes-first)
					enqueueAll(b, s, 1, n, fmt.Sprint("b", first))
					first += n
				}
				for {
					tasks, err := storetest.WorkerOf(s).Claim(b.Context(), 2000)
					if err != nil {
						b.Fatal(err)
					}
					if len(tasks) == 0 {
						break
					}
					ends := make([]storetest.Settlement, len(tasks))
					for i, task := range tasks {
						ends[i] = storetest.Settlement{Task: task, Effect: driver.Deliver, Attempt: driver.Attempt{
							Number: 1, StartedAt: time.Now(), Duration: time.Millisecond, Status: 200,
						}}
						if id == "" {
							id = task.Webhook.ID
						}
						if done++; task.Webhook.ID == id && done/lanes >= next*step && next < dead {
							next++
							ends[i].Effect, ends[i].Attempt.Status, ends[i].Attempt.Class = driver.GiveUp, 500, driver.ClassStatus
						}
					}
					if _, err := storetest.WorkerOf(s).Settle(b.Context(), ends); err != nil {
						b.Fatal(err)
					}
				}
			}
			for more := true; more; { // a service does this every minute
				if more, err = s.Purge(b.Context(), driver.Purge{Limit: 1000}); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				page, err := s.ListDeliveries(b.Context(), "acct_0", id, driver.DeliveryQuery{Failed: true, Limit: 50})
				if err != nil || len(page.Deliveries) != dead || page.Next != "" {
					b.Fatal(len(page.Deliveries), page.Next, err)
				}
			}
		})
	}
}
