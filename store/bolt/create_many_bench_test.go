package bolt

import (
	"crypto/rand"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/storageapi/storageapi/internal/boltfault"
	"github.com/storageapi/storageapi/internal/id"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/driver"
)

// BenchmarkCreateManyKeys measures commits of 256 new keys in different accounts, with fsync, in
// files that already have 10,000 and 1 M keys. It reports the median rate of the turns, the rate in
// the larger file relative to the smaller file ("rate"), and the size of the pages written per key.
// Each key writes two pages that few other keys of the commit share: the page of its hash, which is
// random, and the page of its account's newest keys.
func BenchmarkCreateManyKeys(b *testing.B) {
	const together = 256
	counts := []int{10_000, 1_000_000}
	if testing.Short() {
		counts = []int{1000, 10_000}
	}
	var stores [2]*engine
	for i, count := range counts {
		stores[i], _ = filled(b, count)
	}
	var ids id.Generator
	var times [2][]float64 // seconds per key
	var pages [2]int64
	for b.Loop() {
		for i, s := range stores {
			steps := make([]func(*batch) error, together)
			for n := range steps {
				now := time.Now().UTC().Truncate(time.Millisecond)
				key := driver.Key{
					ID: ids.New("key", now), Account: fmt.Sprint("acct_", n*7%1000), Name: "benchmark",
					Scopes: scopes.Of(scopes.FilesRead, scopes.FilesWrite), CreatedAt: now,
				}
				_, _ = rand.Read(key.Hash.Sum[:])
				steps[n] = func(batch *batch) error {
					if n == 0 {
						batch.AfterCommit(func() { stats := batch.tx.Stats(); pages[i] += stats.GetPageAlloc() })
					}
					return putKey(batch, key, driver.Key{})
				}
			}
			start := time.Now()
			for _, err := range boltfault.Together(b.Context(), s.writer.Run, steps...) {
				if err != nil {
					b.Fatal(err)
				}
			}
			times[i] = append(times[i], time.Since(start).Seconds()/together)
		}
	}
	b.ReportMetric(0, "ns/op")
	var median [2]float64
	for i, count := range counts {
		slices.Sort(times[i])
		median[i] = times[i][len(times[i])/2]
		b.ReportMetric(1/median[i], fmt.Sprintf("keys/s-%d", count))
		b.ReportMetric(float64(pages[i])/float64(len(times[i])*together)/1000, fmt.Sprintf("KB/key-%d", count))
	}
	b.ReportMetric(median[0]/median[1], "rate")
}
