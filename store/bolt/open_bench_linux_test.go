package bolt_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/storetest"
)

var coldSizes = map[string]int64{"1GiB": 1 << 30, "10GB": 10e9}

func init() {
	for name, size := range coldSizes {
		roles["fill "+name] = func(path string) error { return fillAndDie(path, size) }
	}
}

// BenchmarkColdOpen opens files of 1 GiB and 10 GB whose process was killed while it was
// publishing. The system has no part of the file in memory, as after a power loss. Each event has a
// body of 4 KiB, an ID that does not ascend, and a pending delivery. For comparison, the same file
// is read from beginning to end. The reported memory is the heap, and all memory that is not backed
// by files.
func BenchmarkColdOpen(b *testing.B) {
	for name := range coldSizes {
		b.Run(name, func(b *testing.B) {
			if testing.Short() {
				b.Skip("fills the disk: run without -short")
			}
			path := filepath.Join(b.TempDir(), "storage.db")
			fill := exec.CommandContext(b.Context(), os.Args[0], path)
			fill.Env, fill.Stderr = append(os.Environ(), roleVariable+"=fill "+name), os.Stderr
			if err := fill.Run(); fill.ProcessState == nil || fill.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				b.Fatal("it was not killed: ", err)
			}
			var opening, reading time.Duration
			b.ResetTimer()
			for b.Loop() {
				b.StopTimer()
				forgetFile(b, path)
				reading += readWhole(b, path)
				forgetFile(b, path)
				before := memoryOf(b)
				b.StartTimer()
				start := time.Now()
				s, err := bolt.Open(path)
				opening += time.Since(start)
				b.StopTimer()
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(memoryOf(b)-before)/(1<<20), "MiB")
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				b.ReportMetric(float64(m.HeapAlloc)/(1<<20), "heap-MiB")
				backlog, err := storetest.WorkerOf(s).Backlog(b.Context(), "")
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(backlog.Pending), "pending")
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
				debug.FreeOSMemory()
				b.StartTimer()
			}
			b.ReportMetric(opening.Seconds()/float64(b.N), "s/open")
			b.ReportMetric(float64(opening)/float64(reading), "of-reading")
		})
	}
}

// fillAndDie publishes until the file has the given size, and then kills its own process in the
// middle of publishing.
func fillAndDie(path string, size int64) error {
	s, err := bolt.Open(path)
	if err != nil {
		return err
	}
	webhook := driver.Webhook{
		ID: "wh_1", Account: "acct", URL: "https://example.com/", WebhookHealth: driver.WebhookHealth{Active: true}, Events: []driver.EventType{alerts.TypeBalanceLow},
	}
	if err := s.CreateWebhook(context.Background(), webhook, driver.CreateOptions{}); err != nil {
		return err
	}
	body := make([]byte, 4<<10)
	var all sync.WaitGroup
	for p := range uint64(256) {
		all.Go(func() {
			for i := p; err == nil; i += 256 {
				id := fmt.Sprintf("evt_%016x", i*0x9e3779b97f4a7c15)
				if _, err := s.Enqueue(context.Background(), driver.EncodedEvent{
					ID: id, Account: "acct", Type: alerts.TypeBalanceLow, Timestamp: time.Now(), Body: body,
				}); err != nil {
					fmt.Fprintln(os.Stderr, err)
					return
				}
				if info, err := os.Stat(path); i%256 == 0 && (err != nil || info.Size() >= size) {
					_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				}
			}
		})
	}
	all.Wait()
	return io.ErrUnexpectedEOF
}

// readWhole returns how long it takes to read a file from beginning to end.
func readWhole(b *testing.B, path string) time.Duration {
	start := time.Now()
	f, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, f, make([]byte, 1<<20)); err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}

// forgetFile makes the system drop a file from its cache.
func forgetFile(b *testing.B, path string) {
	f, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := f.Sync(); err != nil {
		b.Fatal(err)
	}
	const dontNeed = 4 // POSIX_FADV_DONTNEED
	if _, _, errno := syscall.Syscall6(syscall.SYS_FADVISE64, f.Fd(), 0, 0, dontNeed, 0, 0); errno != 0 {
		b.Fatal(errno)
	}
}

// memoryOf returns how many bytes of memory the process uses that are not backed by files.
func memoryOf(b *testing.B) int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			var kib int64
			for _, c := range strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")) {
				kib = 10*kib + int64(c-'0')
			}
			return kib << 10
		}
	}
	b.Fatal("no RssAnon")
	return 0
}
