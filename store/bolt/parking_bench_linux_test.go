package bolt

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/storageapi/storageapi/internal/boltfault"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

var purgedEvents = flag.Int("purged", 1_000_000, "how many events BenchmarkAfterPurge purges")

// BenchmarkAfterPurge measures single calls to Enqueue: in a new file, in the half full and the
// full file, after a purge of all deliveries, and after the file is half and completely refilled.
// It reports the median time, and the bytes written per commit. The deliveries are pending, so the
// purge first records that each has expired, which makes the file grow before any page is free. The
// refilled file must not be much larger than after the purge. A service would pause during the
// purge; the reported time has no pauses.
func BenchmarkAfterPurge(b *testing.B) {
	events := *purgedEvents
	if testing.Short() {
		events = 10_000
	}
	for b.Loop() {
		b.StopTimer()
		path := filepath.Join(b.TempDir(), "purge.db")
		s, err := open(path)
		if err != nil {
			b.Fatal(err)
		}
		if err := s.CreateWebhook(b.Context(), benchWebhook(0), driver.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
		n := 0
		measure := func(name string) {
			maintain(b, s, time.Time{}) // a service does this every minute
			p50, written := enqueueAlone(b, s, &n, 1000)
			b.ReportMetric(p50, name+"-p50-µs")
			b.ReportMetric(written/1000, name+"-KB/commit")
		}
		measure("fresh")
		enqueueMany(b, s, &n, events/2)
		measure("half")
		enqueueMany(b, s, &n, events/2)
		measure("full")
		full := sizeOf(b, path)
		b.StartTimer()
		began, written := time.Now(), bytesWritten(b)
		maintain(b, s, time.Now().Add(time.Second))
		b.StopTimer()
		b.ReportMetric(time.Since(began).Seconds(), "purge-s")
		b.ReportMetric(float64(bytesWritten(b)-written)/(1<<20), "purge-MiB")
		purged := sizeOf(b, path)
		b.ReportMetric(float64(purged)/float64(full), "purged/full-size")
		b.ReportMetric(float64(s.parking.FreeBytes())/float64(sizeOf(b, path)), "purged-free")
		measure("purged")
		enqueueMany(b, s, &n, events/2)
		measure("refilled-half")
		enqueueMany(b, s, &n, events/2)
		measure("refilled")
		b.ReportMetric(float64(sizeOf(b, path))/float64(purged), "refilled/purged-size")
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// maintain purges events published before the given time.
func maintain(b *testing.B, s *engine, before time.Time) {
	for more := true; more; {
		var err error
		if more, err = s.Purge(b.Context(), driver.Purge{Payloads: before, Attempts: before, EventIDs: before, Limit: 1000}); err != nil {
			b.Fatal(err)
		}
	}
}

// enqueueAlone publishes events one by one. It returns the median time in µs, and the bytes
// written per commit.
func enqueueAlone(b *testing.B, s *engine, n *int, count int) (p50, written float64) {
	took := make([]time.Duration, count)
	before := bytesWritten(b)
	for i := range took {
		began := time.Now()
		if _, err := s.Enqueue(b.Context(), benchEvent(0, *n)); err != nil {
			b.Fatal(err)
		}
		took[i] = time.Since(began)
		*n++
	}
	written = float64(bytesWritten(b)-before) / float64(count)
	slices.Sort(took)
	return float64(took[count/2].Nanoseconds()) / 1000, written
}

// enqueueMany publishes events, 256 at a time.
func enqueueMany(b *testing.B, s *engine, n *int, count int) {
	enqueueBodies(b, s, n, count, make([]byte, 256))
}

func enqueueBodies(b *testing.B, s *engine, n *int, count int, body []byte) {
	var wg sync.WaitGroup
	for p := range 256 {
		wg.Go(func() {
			for i := p; i < count; i += 256 {
				event := benchEvent(0, *n+i)
				event.Body = body
				if _, err := s.Enqueue(b.Context(), event); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	*n += count
}

func sizeOf(tb testing.TB, path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		tb.Fatal(err)
	}
	return info.Size()
}

// bytesWritten returns the number of bytes that the process has written by system calls.
func bytesWritten(tb testing.TB) (n int64) {
	stats, err := os.ReadFile("/proc/self/io")
	if err != nil {
		tb.Fatal(err)
	}
	for line := range bytes.Lines(stats) {
		if _, err := fmt.Sscanf(string(line), "wchar: %d", &n); err == nil {
			return n
		}
	}
	tb.Fatalf("no wchar in %q", stats)
	return 0
}

// BenchmarkFailingCommits measures commits that fail for lack of space, first in a full file of 1
// GiB and then in the same file after a purge. It reports the mean and the longest time that a
// commit holds the writer, and the processor time per commit.
func BenchmarkFailingCommits(b *testing.B) {
	size := int64(1 << 30)
	if testing.Short() {
		size = 20 << 20
	}
	var disk boltfault.Disk
	s := openTemp(b, disk.Option)
	if err := s.CreateWebhook(b.Context(), benchWebhook(0), driver.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	n := 0
	for sizeOf(b, s.db.Path()) < size {
		enqueueMany(b, s, &n, 20_000)
	}
	fail := func(name string) {
		b.Run(name, func(b *testing.B) {
			var took, used []time.Duration
			disk.Around(func(commit func() error) error {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				began, before := time.Now(), processorTime(b)
				s.db.AllocSize, s.db.MaxSize = 0, 1 // bbolt fails, and reads its free list again
				err := commit()
				took, used = append(took, time.Since(began)), append(used, processorTime(b)-before)
				return err
			})
			defer disk.Around(nil)
			for b.Loop() {
				_ = s.writer.RunAlone(b.Context(), func(batch *batch) error {
					return batch.Put(schema.Meta, []byte("large"), make([]byte, 4<<20)) // does not fit
				})
			}
			slices.Sort(took)
			slices.Sort(used)
			b.ReportMetric(float64(used[len(used)/2].Microseconds())/1000, "p50-cpu-ms")
			b.ReportMetric(float64(used[len(used)-1].Microseconds())/1000, "max-cpu-ms")
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "max-ms")
			b.ReportMetric(float64(s.parking.FreeBytes())/float64(s.db.Info().PageSize), "free-pages")
			b.ReportMetric(float64(sizeOf(b, s.db.Path()))/(1<<20), "file-MiB")
		})
	}
	fail("full")
	maintain(b, s, time.Now().Add(time.Second))
	fail("purged")
}
