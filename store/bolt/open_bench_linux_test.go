package bolt

import (
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"

	"github.com/storageapi/storageapi/webhooks"
)

// BenchmarkColdOpen opens a file of 1 GiB, and of 10 GB, of which the system has nothing in
// memory: as after a kill of the host and a restart of the machine, for closing writes nothing that Open
// would need. Each event has a body of 4 KiB and a pending delivery. Memory is the heap, and all that is not of the file.
func BenchmarkColdOpen(b *testing.B) {
	for name, size := range map[string]int64{"1GiB": 1 << 30, "10GB": 10e9} {
		b.Run(name, func(b *testing.B) {
			if testing.Short() {
				b.Skip("fills the disk: run without -short")
			}
			path := filepath.Join(b.TempDir(), "cold.db")
			s, err := Open(path)
			if err != nil {
				b.Fatal(err)
			}
			if err := s.CreateWebhook(b.Context(), benchWebhook(0), webhooks.CreateOptions{}); err != nil {
				b.Fatal(err)
			}
			body := make([]byte, 4<<10)
			n := 0
			for sizeOf(b, path) < size {
				enqueueBodies(b, s, &n, 20_000, body)
			}
			b.ReportMetric(float64(n), "pending")
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
			s = nil
			debug.FreeOSMemory()
			b.ResetTimer()
			for b.Loop() {
				b.StopTimer()
				forgetFile(b, path)
				before := memoryOf(b)
				b.StartTimer()
				s, err := Open(path)
				b.StopTimer()
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(memoryOf(b)-before)/(1<<20), "MiB")
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				b.ReportMetric(float64(m.HeapAlloc)/(1<<20), "heap-MiB")
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
				debug.FreeOSMemory()
				b.StartTimer()
			}
		})
	}
}

// forgetFile has the system forget what it has of a file in memory.
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

// memoryOf returns how many bytes of memory the process has that are not of files.
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
