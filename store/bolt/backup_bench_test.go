package bolt_test

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/driver"
)

// BenchmarkBackup backs up a file of 1 GiB (16 MiB with -short) while 1,000 events a second are
// published. Five turns with a backup alternate with turns of the same length without a backup.
// BenchmarkBackup compares the median and the 99th percentile of a publisher's waiting time
// ("x/p50" and "x/p99", medians of the turns). It also reports how much more the file grew in a
// turn with a backup ("%grown"), and the maximum additional memory in use ("MiB").
//
//	go test -run '^$' -bench Backup -benchtime 1x -timeout 20m ./store/bolt
func BenchmarkBackup(b *testing.B) {
	path := filepath.Join(b.TempDir(), "storage.db")
	s, err := bolt.Open(path)
	must(b, err)
	defer func() { must(b, s.Close()) }()
	must(b, s.CreateWebhook(b.Context(), driver.Webhook{
		Account: "acct", ID: "wh", URL: "https://example.com/", WebhookHealth: driver.WebhookHealth{Active: true}, CreatedAt: time.Now(), Events: []driver.EventType{alerts.TypeBalanceLow},
	}, driver.CreateOptions{}))
	size := int64(1 << 30)
	if testing.Short() {
		size = 16 << 20
	}
	var n atomic.Int64
	publish := func(body []byte) error {
		_, err := s.Enqueue(b.Context(), driver.EncodedEvent{
			ID: fmt.Sprintf("event-%012d", n.Add(1)), Account: "acct", Type: alerts.TypeBalanceLow, Timestamp: time.Now(), Body: body,
		})
		return err
	}
	var wg sync.WaitGroup
	large, small := bytes.Repeat([]byte("x"), 16<<10), bytes.Repeat([]byte("x"), 512)
	for range 32 {
		wg.Go(func() {
			for n.Load() < size/(17<<10) {
				if err := publish(large); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()

	for b.Loop() {
		var p50, p99, grown, memory, took []float64
		for range 5 {
			with, duration := publishDuring(b, path, publish, small, func() {
				info, err := s.Backup(b.Context(), io.Discard)
				must(b, err)
				took = append(took, info.Duration.Seconds())
			})
			without, _ := publishDuring(b, path, publish, small, func() { time.Sleep(duration) })
			p50 = append(p50, with.p50/without.p50)
			p99 = append(p99, with.p99/without.p99)
			grown = append(grown, 100*(with.grown-without.grown)/float64(size))
			memory = append(memory, (with.memory-without.memory)/(1<<20))
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(median(p50), "x/p50")
		b.ReportMetric(median(p99), "x/p99")
		b.ReportMetric(median(grown), "%grown")
		b.ReportMetric(median(memory), "MiB")
		b.ReportMetric(median(took), "s/backup")
	}
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// A turn holds the measurements of one turn of [BenchmarkBackup].
type turn struct{ p50, p99, grown, memory float64 }

// publishDuring publishes 1,000 events a second while do runs. It starts each event on time, even
// if earlier events are not stored yet.
func publishDuring(b *testing.B, path string, publish func([]byte) error, body []byte, do func()) (t turn, took time.Duration) {
	done := make(chan time.Duration)
	before, heap := sizeOf(b, path), heapInUse()
	go func() {
		began := time.Now()
		do()
		done <- time.Since(began)
	}()
	var mu sync.Mutex
	var waits []time.Duration
	var wg sync.WaitGroup
	began := time.Now()
	for next := 0; took == 0; {
		for ; time.Duration(next)*time.Millisecond < time.Since(began); next++ {
			wg.Go(func() {
				at := time.Now()
				if err := publish(body); err != nil {
					b.Error(err)
				}
				wait := time.Since(at)
				mu.Lock()
				defer mu.Unlock()
				waits = append(waits, wait)
			})
			if next%50 == 0 {
				t.memory = max(t.memory, heapInUse()-heap)
			}
		}
		select {
		case took = <-done:
		case <-time.After(500 * time.Microsecond):
		}
	}
	wg.Wait()
	slices.Sort(waits)
	t.p50, t.p99 = waits[len(waits)/2].Seconds(), waits[len(waits)*99/100].Seconds()
	t.grown = float64(sizeOf(b, path) - before)
	return t, took
}

func heapInUse() float64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapInuse)
}
