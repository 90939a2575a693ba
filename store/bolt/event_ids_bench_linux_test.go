package bolt_test

import (
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/driver"
)

// idKinds generate event IDs in the forms that services and hosts use.
var idKinds = []struct {
	name string
	make func(r *rand.Rand) string
}{
	{"ascending", func(*rand.Rand) string { return "evt_" + ulid.Make().String() }},
	{"random", randomID},
	{"numbered", func(*rand.Rand) string { return numberedID(numbered.Add(1)) }},
	{"repeated", func(*rand.Rand) string { return numberedID(numbered.Add(1)) }}, // BenchmarkEventIDs publishes these IDs again
}

// numbered is the last number of a numbered ID.
var numbered atomic.Int64

func numberedID(n int64) string { return fmt.Sprintf("evt_%026d", n) }

// randomID returns a UUID of version 4.
func randomID(r *rand.Rand) string {
	var b [16]byte
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	s := hex.EncodeToString(b[:])
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

// written returns the number of bytes that this process has written to files.
func written(b *testing.B) (bytes float64) {
	b.Helper()
	io, err := os.ReadFile("/proc/self/io")
	if err != nil {
		b.Skip(err)
	}
	var read int
	if _, err := fmt.Sscanf(string(io), "rchar: %d\nwchar: %f", &read, &bytes); err != nil {
		b.Fatal(err)
	}
	return bytes
}

// BenchmarkEventIDs measures how 256 concurrent publishers store events with IDs of several kinds
// for one webhook. "kept" is the number of events already in the file, with IDs of the same kind.
// It also measures publishing stored events again. "B/event" is the number of bytes written to the
// file, "p99-µs" is the 99th percentile of the time that a publisher waits, and "open-ms" is the
// duration of Open. Filling a file with 4 M events takes a minute and 2 GB of disk:
//
//	go test -run '^$' -bench 'BenchmarkEventIDs/kept=(0|1000000|4000000)$' -benchtime 500000x -timeout 1h ./store/bolt
func BenchmarkEventIDs(b *testing.B) {
	for _, kept := range []int{0, 1_000_000, 4_000_000} {
		for _, kind := range idKinds {
			b.Run(fmt.Sprintf("kept=%d/%s", kept, kind.name), func(b *testing.B) {
				if testing.Short() && kept > 0 {
					b.Skip("fills a large file: run without -short")
				}
				numbered.Store(0)
				path := fileWithIDs(b, kept, kind.name, kind.make)
				begun := time.Now()
				s, err := bolt.Open(path)
				opened := time.Since(begun)
				if err != nil {
					b.Fatal(err)
				}
				defer func() { _ = s.Close() }()
				createWebhooks(b, s, 1, 1)
				account, make := "acct_0", kind.make
				if kind.name == "repeated" {
					account, make = "nobody", func(r *rand.Rand) string { return numberedID(1 + r.Int64N(max(1, int64(kept)))) }
				}
				before, cpu := written(b), processorTime(b)
				b.ResetTimer()
				waits := enqueueWithIDs(b, s, b.N, account, make)
				b.StopTimer()
				slices.Sort(waits)
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
				b.ReportMetric((written(b)-before)/float64(b.N), "B/event")
				b.ReportMetric(float64((processorTime(b)-cpu).Microseconds())/float64(b.N), "cpu-µs/event")
				b.ReportMetric(float64(waits[len(waits)/2].Microseconds()), "p50-µs")
				b.ReportMetric(float64(waits[len(waits)*99/100].Microseconds()), "p99-µs")
				b.ReportMetric(float64(waits[len(waits)-1].Microseconds()), "max-µs")
				b.ReportMetric(float64(opened.Microseconds())/1000, "open-ms")
			})
		}
	}
}

// filledFiles is the directory where BenchmarkEventIDs keeps the files that it has filled.
var filledFiles = flag.String("filled", "", "directory of files that BenchmarkEventIDs filled before, to be used again, and to be kept in (default: none)")

// fileWithIDs returns a file with the given number of events. It fills a new file, or copies a file
// from an earlier run.
func fileWithIDs(b *testing.B, kept int, name string, id func(*rand.Rand) string) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "ids.db")
	filled := path
	if *filledFiles != "" {
		filled = filepath.Join(*filledFiles, fmt.Sprintf("ids-%d-%s.db", kept, name))
	}
	if _, err := os.Stat(filled); err != nil {
		s, err := bolt.Open(filled + ".part")
		if err != nil {
			b.Fatal(err)
		}
		enqueueWithIDs(b, s, kept, "nobody", id)
		if err := errors.Join(s.Close(), os.Rename(filled+".part", filled)); err != nil {
			b.Fatal(err)
		}
	}
	if filled == path {
		return path
	}
	from, err := os.Open(filled)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = from.Close() }()
	to, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	_, err = io.Copy(to, from)
	if err := errors.Join(err, to.Sync(), to.Close()); err != nil {
		b.Fatal(err)
	}
	return path
}

// enqueueWithIDs stores events of the account, and returns how long each took.
func enqueueWithIDs(b *testing.B, s *bolt.Store, events int, account string, id func(*rand.Rand) string) []time.Duration {
	b.Helper()
	const publishers = 256
	body, waits := make([]byte, 256), make([]time.Duration, events)
	parallel(publishers, min(events, publishers), func(p int) {
		r := rand.New(rand.NewPCG(uint64(p), uint64(time.Now().UnixNano())))
		for i := p; i < events; i += publishers {
			begun := time.Now()
			_, err := s.Enqueue(b.Context(), driver.EncodedEvent{
				ID: id(r), Account: account, Type: alerts.TypeBalanceLow, Timestamp: begun, Body: body,
			})
			if err != nil {
				b.Error(err)
			}
			waits[i] = time.Since(begun)
		}
	})
	return waits
}

// BenchmarkSinglePublisher counts the bytes that a single publisher causes: in the commit that
// stores an event, in the commit that settles its delivery, and in both. "kept" is the number of
// deliveries already in the file.
func BenchmarkSinglePublisher(b *testing.B) {
	for _, kept := range []int{0, 5_000, 100_000} {
		b.Run(fmt.Sprint("kept=", kept), func(b *testing.B) {
			if testing.Short() && kept > 0 {
				b.Skip("fills a file by lone commits: run without -short")
			}
			s, err := bolt.Open(filepath.Join(b.TempDir(), "lone.db"))
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			createWebhooks(b, s, 1, 1)
			var publish, settle float64
			deliverOne := func() {
				before := written(b)
				enqueueWithIDs(b, s, 1, "acct_0", idKinds[0].make)
				between := written(b)
				deliver(b, s, 0)
				publish, settle = publish+between-before, settle+written(b)-between
			}
			for range kept {
				deliverOne()
			}
			publish, settle = 0, 0
			b.ResetTimer()
			for range b.N {
				deliverOne()
			}
			b.StopTimer()
			b.ReportMetric(publish/float64(b.N), "B/publish")
			b.ReportMetric(settle/float64(b.N), "B/settle")
			b.ReportMetric((publish+settle)/float64(b.N), "B/delivery")
		})
	}
}

// processorTime returns the processor time that this process has used.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		b.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
