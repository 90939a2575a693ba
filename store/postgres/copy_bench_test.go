package postgres_test

import (
	"flag"
	"path/filepath"
	"testing"
	"time"

	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/transfer"
)

var benchCopied = flag.Int("copied", 10_000, "in BenchmarkCopy: keys, settled deliveries and pending ones, as many of each, in a thousandth as many accounts")

// BenchmarkCopy measures copying a file to PostgreSQL, including the comparison of both stores.
func BenchmarkCopy(b *testing.B) {
	source, err := bolt.Open(filepath.Join(b.TempDir(), "storage.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = source.Close() }()
	n := *benchCopied
	fillStore(b, source, load{accounts: max(1, n/1000), keys: n, settled: n, pending: n})
	for b.Loop() {
		p, server := durable(b)
		target := openOn(b, p)
		copied := time.Duration(0)
		begun, cpu := time.Now(), server.CPU()+ownCPU()
		_, err := transfer.Copy(b.Context(), target, source, transfer.CopyOptions{Progress: func(at transfer.Progress) {
			if !at.Comparing {
				copied = time.Since(begun)
			}
		}})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(copied.Seconds(), "s-to-copy")
		b.ReportMetric(time.Since(begun).Seconds(), "s-in-all")
		b.ReportMetric(float64((server.CPU()+ownCPU()-cpu).Microseconds())/float64(3*n), "cpu-µs/record")
		b.ReportMetric(float64((server.CPU()).Microseconds())/float64(3*n), "server-µs/record")
		b.ReportMetric(walOf(b, p)/float64(3*n), "log-B/record")
	}
}
