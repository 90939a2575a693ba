package bolt

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
)

// BenchmarkVerify measures KeyService.Verify of random keys out of many against
// its floor: the SHA-256 of the key and a bare View and Get of the same record,
// copied out since it dies with the View, in a copy of the file that is opened
// with bbolt's defaults. "x/tuned" is the same with bbolt's statistics off, as
// this package has them. All three take turns, each with other keys, so that
// what else the machine does hits all. "heap-growth" is what is left in memory of
// having verified each of the keys.
func BenchmarkVerify(b *testing.B) {
	for _, count := range []int{10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint("keys=", count), func(b *testing.B) {
			if testing.Short() && count > 10_000 {
				b.Skip("takes half a minute to prepare: run without -short")
			}
			s, err := Open(filepath.Join(b.TempDir(), "keys.db"))
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			tokens := Fill(b, s, count, 1000)
			service, err := apikeys.New(s, apikeys.Config{})
			if err != nil {
				b.Fatal(err)
			}
			defer service.Close()
			bare := copyOf(b, s.db)
			ctx := b.Context()

			contenders := []func(token string) error{
				func(token string) error { return lookUp(bare, token) },
				func(token string) error { return lookUp(s.db, token) },
				func(token string) error { _, err := service.Verify(ctx, token); return err },
			}
			before := heap()
			const round = 500
			times := make([][]time.Duration, len(contenders))
			for b.Loop() {
				for i, contender := range contenders {
					some := make([]string, round)
					for i := range some {
						some[i] = tokens[rand.IntN(count)]
					}
					start := time.Now()
					for _, token := range some {
						if err := contender(token); err != nil {
							b.Fatal(err)
						}
					}
					times[i] = append(times[i], time.Since(start))
				}
			}
			median := func(i int) float64 {
				slices.Sort(times[i])
				return float64(times[i][len(times[i])/2]) / round
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(2), "verify-ns")
			b.ReportMetric(median(2)/median(0), "x/floor")
			b.ReportMetric(median(2)/median(1), "x/tuned")
			b.ReportMetric(testing.AllocsPerRun(100, func() { _ = contenders[2](tokens[0]) })-
				testing.AllocsPerRun(100, func() { _ = contenders[0](tokens[0]) }), "allocs-beyond")
			for _, token := range tokens { // each key once: what is kept of a use is bounded
				if err := contenders[2](token); err != nil {
					b.Fatal(err)
				}
			}
			clear(times)
			b.ReportMetric(float64(heap()-before)/(1<<20), "heap-growth-MiB")
			runtime.KeepAlive(tokens)
		})
	}
}

// heap returns the bytes in use once all that can be collected is.
func heap() int64 {
	for range 3 { // what was in a sync.Pool takes more than one
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// lookUp is the floor.
func lookUp(db *bbolt.DB, token string) error {
	sum := sha256.Sum256([]byte(token))
	return db.View(func(tx *bbolt.Tx) error {
		var value [256]byte
		if copy(value[:], tx.Bucket(bucketKeys).Get(sum[:])) == 0 {
			return record.ErrCorrupt
		}
		return nil
	})
}

// copyOf opens a copy of the file with bbolt's defaults.
func copyOf(b *testing.B, db *bbolt.DB) *bbolt.DB {
	path := filepath.Join(b.TempDir(), "copy.db")
	if err := db.View(func(tx *bbolt.Tx) error { return tx.CopyFile(path, 0o600) }); err != nil {
		b.Fatal(err)
	}
	bare, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = bare.Close() })
	return bare
}

// Fill stores that many keys of as many accounts, acct_0 and so on, each of which was
// used, and returns their tokens.
func Fill(b *testing.B, s *Store, count, accounts int) []string {
	type made struct {
		key   apikeys.Key
		row   []byte
		token string
	}
	var all []made
	taken := func(key apikeys.Key) { all = append(all, made{key, record.Prefixed(key.Account, key.ID), ""}) }
	service, err := apikeys.New(collector{make: taken}, apikeys.Config{})
	if err != nil {
		b.Fatal(err)
	}
	for i := range count {
		params := apikeys.CreateParams{Name: "benchmark", Scopes: scopes.Of(scopes.FilesRead, scopes.FilesWrite)}
		_, token, err := service.Create(b.Context(), fmt.Sprint("acct_", i%accounts), params)
		if err != nil {
			b.Fatal(err)
		}
		all[i].token = token.Reveal()
	}
	// In the order of each tree, so that it is quick.
	store := func(less func(a, b made) int, put func(*batch, *made) error) {
		slices.SortFunc(all, less)
		for chunk := range slices.Chunk(all, 100_000) {
			err := s.writer.Run(b.Context(), func(batch *batch) error {
				for i := range chunk {
					if err := put(batch, &chunk[i]); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	store(func(a, b made) int { return bytes.Compare(a.row, b.row) }, func(batch *batch, m *made) error {
		if err := batch.Put(bucketKeyIDs, m.row, m.key.Hash.Sum[:]); err != nil {
			return err
		}
		return putUses(batch, m.row, record.Uses{Any: m.key.CreatedAt, Current: m.key.CreatedAt}, record.Uses{})
	})
	store(func(a, b made) int { return bytes.Compare(a.key.Hash.Sum[:], b.key.Hash.Sum[:]) }, func(batch *batch, m *made) error {
		return batch.Put(bucketKeys, m.key.Hash.Sum[:], record.EncodeKey(&m.key))
	})
	tokens := make([]string, count)
	for i, m := range all {
		tokens[i] = m.token
	}
	return tokens
}

// A collector is a store that only takes note of the keys created.
type collector struct {
	apikeys.Store
	make func(apikeys.Key)
}

func (c collector) CreateKey(_ context.Context, key apikeys.Key, _ apikeys.CreateOptions) error {
	c.make(key)
	return nil
}
