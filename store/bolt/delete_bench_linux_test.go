package bolt

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/bolt/internal/eventlog"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/storetest"
)

// BenchmarkDelete deletes a webhook with 1 M pending deliveries, half of which have had an attempt.
// Then it purges as a service does, until the rows of the deliveries are removed. It reports how
// much processor time, in milliseconds, the deletion and the longest other step use while they hold
// the writer. It also reports how long publishing to other webhooks takes (p50), before the
// deletion and during it.
func BenchmarkDelete(b *testing.B) {
	pending := 1_000_000
	if testing.Short() {
		pending = 20_000
	}
	for b.Loop() {
		b.StopTimer()
		s, err := open(filepath.Join(b.TempDir(), "delete.db"))
		if err != nil {
			b.Fatal(err)
		}
		for i := range 2 {
			makePending(b, s, i, pending)
		}
		b.StartTimer()
		deletion, longest := deleteAlone(b, s, 0)
		before, during, swept := deleteMeanwhile(b, s, 1)
		b.ReportMetric(deletion, "deletion-cpu-ms")
		b.ReportMetric(longest, "longest-cpu-ms")
		b.ReportMetric(before, "p50-before-µs")
		b.ReportMetric(during, "p50-during-µs")
		b.ReportMetric(swept, "swept-s")
		b.StopTimer()
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// BenchmarkExpire measures a purge that ends 1000 pending deliveries. Their webhook is off, and has
// 200,000 deliveries that wait for a retry.
func BenchmarkExpire(b *testing.B) {
	pending := 200_000
	if testing.Short() {
		pending = 20_000
	}
	s, err := open(filepath.Join(b.TempDir(), "expire.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	makePending(b, s, 0, pending)
	for fresh := true; fresh; { // first expire the cheaper deliveries without an attempt
		if _, err := s.Purge(b.Context(), driver.Purge{Payloads: time.Now(), Limit: 1000}); err != nil {
			b.Fatal(err)
		}
		err := s.db.View(func(tx *bbolt.Tx) error {
			key, _ := tx.Bucket(schema.Fresh).Cursor().First()
			fresh = key != nil
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if _, err := s.Purge(b.Context(), driver.Purge{Payloads: time.Now(), Limit: 1000}); err != nil {
			b.Fatal(err)
		}
	}
}

func benchWebhook(i int) driver.Webhook {
	return driver.Webhook{
		ID: fmt.Sprintf("wh_%026d", i), Account: fmt.Sprint("acct_", i), URL: "https://example.com/", WebhookHealth: driver.WebhookHealth{Active: true},
		Events: []driver.EventType{alerts.TypeBalanceLow},
	}
}

func benchEvent(account, i int) driver.EncodedEvent {
	return driver.EncodedEvent{
		ID: fmt.Sprintf("evt_%02d_%023d", account, i), Account: fmt.Sprint("acct_", account), Type: alerts.TypeBalanceLow,
		Timestamp: time.Now(), Body: make([]byte, 256),
	}
}

// makePending creates a webhook with the given number of pending deliveries.
func makePending(b *testing.B, s *engine, account, pending int) {
	if err := s.CreateWebhook(b.Context(), benchWebhook(account), driver.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	for p := range 256 {
		wg.Go(func() {
			for i := p; i < pending; i += 256 {
				if _, err := s.Enqueue(b.Context(), benchEvent(account, i)); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for n := 0; n < pending/2; {
		tasks, err := storetest.WorkerOf(s).Claim(b.Context(), 500)
		if err != nil {
			b.Fatal(err)
		}
		var settlements []storetest.Settlement
		for _, task := range tasks {
			settlements = append(settlements, storetest.Settlement{
				Task: task, Effect: driver.Retry, RetryAfter: 20*time.Hour + rand.N(8*time.Hour),
				Attempt: driver.Attempt{Number: 1, StartedAt: time.Now(), Status: 500},
			})
		}
		if _, err := storetest.WorkerOf(s).Settle(b.Context(), settlements); err != nil {
			b.Fatal(err)
		}
		n += len(tasks)
	}
}

// deleteAlone deletes the account's webhook, and measures how long the steps hold the writer.
func deleteAlone(b *testing.B, s *engine, account int) (deletion, longest float64) {
	webhook := benchWebhook(account)
	deletion = holds(b, s, func(b *batch) error { return s.deleteWebhook(b, webhook.Account, webhook.ID, nil) })
	longest = deletion
	for s.swept = eventlog.NewSweep(map[string]bool{webhook.ID: true}); !s.swept.IsDone(); {
		found, next, err := s.findLeftovers(b.Context(), 1000)
		if err != nil {
			b.Fatal(err)
		}
		longest = max(longest, holds(b, s, func(b *batch) error { return b.removeLeftovers(found, nil) }))
		s.swept = next
	}
	return deletion, longest
}

// holds returns how long a step holds the writer, in milliseconds of processor time.
func holds(b *testing.B, s *engine, step func(*batch) error) float64 {
	var begun, took time.Duration
	err := errors.Join(together(b, s, func(*batch) error {
		runtime.LockOSThread() // AfterCommit functions run in this goroutine, too
		begun = processorTime(b)
		return nil
	}, step, func(batch *batch) error {
		batch.AfterCommit(func() {
			took = processorTime(b) - begun
			runtime.UnlockOSThread()
		})
		return nil
	})...)
	if err != nil {
		b.Fatal(err)
	}
	return float64(took.Microseconds()) / 1000
}

// deleteMeanwhile deletes the account's webhook while others publish.
func deleteMeanwhile(b *testing.B, s *engine, account int) (before, during, swept float64) {
	var begun time.Time
	waitsBefore, waitsDuring := publishBeside(b, s, func() {
		webhook := benchWebhook(account)
		begun = time.Now()
		if err := s.DeleteWebhook(b.Context(), webhook.Account, webhook.ID, nil, audit.Entry{}); err != nil {
			b.Fatal(err)
		}
		for more := true; more; {
			var err error
			step := time.Now()
			if more, err = s.Purge(b.Context(), driver.Purge{Limit: 1000}); err != nil {
				b.Fatal(err)
			}
			time.Sleep(4 * time.Since(step)) // as a service pauses
		}
		swept = time.Since(begun).Seconds()
	})
	return quantile(waitsBefore, 50), quantile(waitsDuring, 50), swept
}

// publishBeside publishes to another account for three seconds, and then while do runs. It returns
// the times that publishing took, ascending.
func publishBeside(b *testing.B, s *engine, do func()) (before, during []time.Duration) {
	if err := s.CreateWebhook(b.Context(), benchWebhook(2), driver.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	var mu sync.Mutex
	var took []time.Duration
	stop := make(chan struct{})
	var publishers sync.WaitGroup
	for p := range 8 {
		publishers.Go(func() {
			for i := p; ; i += 8 {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
				}
				begun := time.Now()
				if _, err := s.Enqueue(b.Context(), benchEvent(2, i)); err != nil {
					b.Error(err)
				}
				mu.Lock()
				took = append(took, time.Since(begun))
				mu.Unlock()
			}
		})
	}
	taken := func() []time.Duration {
		mu.Lock()
		defer mu.Unlock()
		list := took
		slices.Sort(list)
		took = nil
		return list
	}
	time.Sleep(3 * time.Second)
	before = taken()
	do()
	during = taken()
	close(stop)
	publishers.Wait()
	return before, during
}

// quantile returns a percentile of sorted times, in µs.
func quantile(sorted []time.Duration, percent int) float64 {
	return float64(sorted[len(sorted)*percent/100].Nanoseconds()) / 1000
}

// processorTime returns the processor time that this thread has used.
func processorTime(b *testing.B) time.Duration {
	const thread = 3 // CLOCK_THREAD_CPUTIME_ID
	var now syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, thread, uintptr(unsafe.Pointer(&now)), 0); errno != 0 {
		b.Fatal(errno)
	}
	return time.Duration(now.Nano())
}
