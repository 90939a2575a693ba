package bolt_test

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/storetest"
)

// BenchmarkQueue measures the queue without HTTP: 256 publishers store events, and one goroutine
// claims the deliveries and settles them after one attempt. b.N counts deliveries. fanout is the
// number of webhooks that get each event, pending is the number of other deliveries that are due
// later, and webhooks is the total number of webhooks.
func BenchmarkQueue(b *testing.B) {
	for _, c := range []struct{ fanout, pending, webhooks int }{
		{1, 0, 10}, {10, 0, 10},
		{10, 1000, 1000}, {10, 100_000, 1000}, {10, 1_000_000, 1000}, // more pending
		{10, 100_000, 10}, {10, 100_000, 10_000}, // more webhooks
	} {
		b.Run(fmt.Sprintf("fanout=%d/pending=%d/webhooks=%d", c.fanout, c.pending, c.webhooks), func(b *testing.B) {
			if testing.Short() && c.pending > 1000 {
				b.Skip("fills a large file: run without -short")
			}
			s, err := bolt.Open(filepath.Join(b.TempDir(), "queue.db"))
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			accounts := c.webhooks / c.fanout
			createWebhooks(b, s, accounts, c.fanout)
			enqueueAll(b, s, accounts, c.pending/c.fanout, "before")
			postpone(b, s, c.pending/c.fanout*c.fanout)
			b.ResetTimer()
			var publishing sync.WaitGroup
			publishing.Go(func() { enqueueAll(b, s, accounts, b.N/c.fanout, "event") })
			for settled := 0; settled < b.N/c.fanout*c.fanout; {
				settled += deliver(b, s, 0)
			}
			publishing.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "deliveries/s")
		})
	}
}

// BenchmarkBacklog measures the cost of 1 M pending deliveries to 10,000 webhooks: the time until
// the file is open, until the first delivery is claimed, and until all deliveries are reported, and
// the memory in use then. Meanwhile 4 publishers store an event per millisecond. p99-ms is the 99th
// percentile of the time to store these events; alone-p99-ms is the same for events published
// afterwards.
func BenchmarkBacklog(b *testing.B) {
	pending := 1_000_000
	if testing.Short() {
		pending = 10_000
	}
	path := filepath.Join(b.TempDir(), "backlog.db")
	s, err := bolt.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	createWebhooks(b, s, 1000, 10)
	enqueueAll(b, s, 1000, pending/10, "event")
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	round := 0
	// publish stores events until while returns false. It returns the 99th percentile of the time
	// to store an event.
	publish := func(name string, while func() bool) time.Duration {
		round++
		var took []time.Duration
		var mu sync.Mutex
		parallel(4, 4, func(p int) {
			for i := 0; while(); i++ {
				began := time.Now()
				_, err := s.Enqueue(b.Context(), driver.EncodedEvent{
					ID: fmt.Sprint("evt_", name, round, p, "_", i), Account: "others", Type: alerts.TypeBalanceLow, Timestamp: began,
				})
				if err != nil {
					b.Error(err)
				}
				mu.Lock()
				took = append(took, time.Since(began))
				mu.Unlock()
				time.Sleep(4 * time.Millisecond)
			}
		})
		slices.Sort(took)
		return took[len(took)*99/100]
	}
	var opened, claimed, loaded, beside, alone time.Duration
	var bytes float64
	for b.Loop() {
		s = nil
		before := heap()
		began := time.Now()
		if s, err = bolt.Open(path); err != nil {
			b.Fatal(err)
		}
		opened += time.Since(began)
		if tasks, err := storetest.WorkerOf(s).Claim(b.Context(), 1); len(tasks) != 1 || err != nil {
			b.Fatal(len(tasks), err)
		}
		claimed += time.Since(began)
		var all atomic.Bool
		go func() {
			for ; !all.Load(); time.Sleep(100 * time.Millisecond) {
				left, err := s.Unreported(context.Background(), "")
				all.Store(left.Pending == 0 || err != nil)
			}
		}()
		beside += publish("beside", func() bool { return !all.Load() })
		loaded += time.Since(began)
		bytes += heap() - before
		until := time.Now().Add(3 * time.Second)
		alone += publish("alone", func() bool { return time.Now().Before(until) })
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(0, "ns/op")
	for what, d := range map[string]time.Duration{"open-ms": opened, "first-claim-ms": claimed, "all-ms": loaded, "p99-ms": beside, "alone-p99-ms": alone} {
		b.ReportMetric(float64(d.Microseconds())/1000/float64(b.N), what)
	}
	b.ReportMetric(bytes/float64(b.N)/float64(pending), "bytes/pending")
}

func heap() float64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}

// createWebhooks creates the same number of webhooks for every account.
func createWebhooks(b *testing.B, s *bolt.Store, accounts, each int) {
	b.Helper()
	parallel(256, accounts*each, func(i int) {
		err := s.CreateWebhook(b.Context(), driver.Webhook{
			ID: fmt.Sprintf("wh_%026d", i), Account: fmt.Sprint("acct_", i/each), URL: "https://example.com/hooks", WebhookHealth: driver.WebhookHealth{Active: true},
			Events: []driver.EventType{alerts.TypeBalanceLow}, Secret: signing.NewSecret(),
		}, driver.CreateOptions{})
		if err != nil {
			b.Error(err)
		}
	})
}

// enqueueAll stores events for all accounts in turn, 256 at a time.
func enqueueAll(b *testing.B, s *bolt.Store, accounts, events int, name string) {
	b.Helper()
	body := make([]byte, 256)
	parallel(256, events, func(i int) {
		_, err := s.Enqueue(b.Context(), driver.EncodedEvent{
			ID: fmt.Sprintf("evt_%s_%018d", name, i), Account: fmt.Sprint("acct_", i%accounts), Type: alerts.TypeBalanceLow, Timestamp: time.Now(), Body: body,
		})
		if err != nil {
			b.Error(err)
		}
	})
}

// postpone postpones due deliveries by a day.
func postpone(b *testing.B, s *bolt.Store, deliveries int) {
	b.Helper()
	for n := 0; n < deliveries; {
		n += deliver(b, s, 24*time.Hour)
	}
}

// deliver claims some of the due deliveries, and settles them, or postpones them if putOff is
// positive. It returns their number.
func deliver(b *testing.B, s *bolt.Store, putOff time.Duration) int {
	tasks, err := storetest.WorkerOf(s).Claim(b.Context(), 512)
	if err != nil {
		b.Fatal(err)
	}
	if len(tasks) == 0 {
		runtime.Gosched()
		return 0
	}
	settlements := make([]storetest.Settlement, len(tasks))
	for i, task := range tasks {
		settlements[i] = storetest.Settlement{Task: task, Attempt: driver.Attempt{
			Number: task.Attempt, StartedAt: time.Now(), Duration: time.Millisecond, Status: 200, Response: "ok",
		}}
		settlements[i].Effect = driver.Deliver
		if putOff > 0 {
			settlements[i].Effect, settlements[i].RetryAfter = driver.Retry, putOff
		}
	}
	if _, err := storetest.WorkerOf(s).Settle(b.Context(), settlements); err != nil {
		b.Fatal(err)
	}
	return len(tasks)
}

// parallel calls do from several goroutines, once for each number from 0 to n-1.
func parallel(goroutines, n int, do func(i int)) {
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := g; i < n; i += goroutines {
				do(i)
			}
		})
	}
	wg.Wait()
}
