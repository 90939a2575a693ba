package bolt

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// BenchmarkVerify measures KeyService.Verify on a file of many keys. It verifies a thousand of the
// keys ("hot"), all keys, the nth key with a frequency in proportion to n^-1.1 ("zipf"), or all
// keys equally often ("uniform"). Verify takes turns with
//
//   - the floor: the SHA-256 of the key, and a bare View and Get of the same record, in a copy of
//     the file opened with bbolt's defaults (the record is copied, since it is valid only within
//     the View);
//   - Verify on another copy, with no key in memory (CacheKeys(0)): "file";
//   - Verify on a map of all keys with an RWMutex: "map".
//
// They take turns so that other load on the machine affects all alike. Each turn runs with one
// goroutine and then with two, which use separate keys. Figures are medians of the turns' ratios:
// "x/floor" is the time relative to the floor; "rate/file" and "rate/map" are the rates relative to
// "file" and "map"; "two/one" is the rate of two goroutines relative to the rate of one. "MiB" is
// the memory that the keys take after each was looked up three times.
func BenchmarkVerify(b *testing.B) {
	for _, count := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprint("keys=", count), func(b *testing.B) {
			if testing.Short() && count > 10_000 {
				b.Skip("takes half a minute to prepare: run without -short")
			}
			s, tokens := filled(b, count)
			var contenders []func(token string) error
			for _, store := range []driver.KeyStore{s, copied(b, s), mapOf(b, s)} {
				contenders = append(contenders, verifier(b, store))
			}
			bare := copyOf(b, s.db)
			contenders = append(contenders, func(token string) error { return lookUp(bare, token) })
			zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, uint64(count-1))
			for _, load := range []struct {
				name string
				next func() int
			}{
				{"hot", func() int { return rand.IntN(1000) }},
				{"zipf", func() int { return int(zipf.Uint64()) }},
				{"uniform", func() int { return rand.IntN(count) }},
			} {
				b.Run(load.name, func(b *testing.B) { benchmarkVerify(b, contenders, tokens, load.next) })
			}
			b.Run("memory", func(b *testing.B) { benchmarkKeyMemory(b, s, tokens) })
			runtime.KeepAlive(contenders)
			runtime.KeepAlive(tokens)
		})
	}
}

func benchmarkVerify(b *testing.B, contenders []func(token string) error, tokens []string, next func() int) {
	const round = 5000
	some := [2][]string{make([]string, round), make([]string, round)}
	// turn returns how long the given number of goroutines take to verify round tokens each.
	turn := func(verify func(token string) error, goroutines int) time.Duration {
		for _, list := range some[:goroutines] {
			for i := range list {
				list[i] = tokens[next()]
			}
		}
		var wg sync.WaitGroup
		start := time.Now()
		for _, list := range some[:goroutines] {
			wg.Go(func() {
				for _, token := range list {
					if err := verify(token); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		return time.Since(start)
	}
	warmup := 200 // turns that bring frequently used keys into memory
	if testing.Short() {
		warmup = 1
	}
	for range warmup {
		turn(contenders[0], 2)
	}
	var times [4][2][]float64
	for b.Loop() {
		for i, verify := range contenders {
			for g := range 2 {
				times[i][g] = append(times[i][g], float64(turn(verify, g+1)))
			}
		}
	}
	ratio := func(of, to []float64) float64 {
		ratios := make([]float64, len(of))
		for i := range of {
			ratios[i] = of[i] / to[i]
		}
		slices.Sort(ratios)
		return ratios[len(ratios)/2]
	}
	cached, file, floor, inMap := times[0], times[1], times[3], times[2]
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ratio(cached[0], floor[0]), "x/floor")
	b.ReportMetric(ratio(file[0], cached[0]), "rate/file")
	b.ReportMetric(ratio(file[1], cached[1]), "rate/file-two")
	b.ReportMetric(ratio(inMap[0], cached[0]), "rate/map")
	b.ReportMetric(2*ratio(cached[0], cached[1]), "two/one")
	b.ReportMetric(2*ratio(file[0], file[1]), "two/one-file")
	b.ReportMetric(2*ratio(inMap[0], inMap[1]), "two/one-map")
	b.ReportMetric(testing.AllocsPerRun(100, func() { _ = contenders[0](tokens[0]) }), "allocs")
	slices.Sort(cached[0])
	b.ReportMetric(cached[0][len(cached[0])/2]/round, "verify-ns")
}

func benchmarkKeyMemory(b *testing.B, s *engine, tokens []string) {
	s.keyRows = newKeyRows(defaultCachedKeys)
	before := heap()
	for b.Loop() {
		for _, token := range tokens {
			for range 3 {
				if _, err := s.KeyByHash(b.Context(), driver.Hash{Sum: sha256.Sum256([]byte(token))}); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(heap()-before)/(1<<20), "MiB")
}

// filled returns a store with the given number of keys in 1,000 accounts, and their tokens.
func filled(b *testing.B, count int) (*engine, []string) {
	s, err := open(filepath.Join(b.TempDir(), "keys.db"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	return s, fill(b, s, count, 1000)
}

// copied returns a store on a copy of the file, with an empty cache of keys.
func copied(b *testing.B, s *engine) *engine {
	path := filepath.Join(b.TempDir(), "copy.db")
	if err := s.db.View(func(tx *bbolt.Tx) error { return tx.CopyFile(path, 0o600) }); err != nil {
		b.Fatal(err)
	}
	of, err := open(path, CacheKeys(0))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = of.Close() })
	return of
}

// verifier returns the Verify method of a service backed by store.
func verifier(b *testing.B, store driver.KeyStore) func(token string) error {
	service, err := apikeys.New(store, apikeys.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(service.Close)
	ctx := context.Background()
	return func(token string) error { _, err := service.Verify(ctx, token); return err }
}

// A mapStore holds all keys in a map.
type mapStore struct {
	driver.KeyStore
	mu   sync.RWMutex
	keys map[driver.Hash]*driver.Key
}

func (m *mapStore) KeyByHash(_ context.Context, hash driver.Hash) (driver.Key, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	key := m.keys[hash]
	if key == nil {
		return driver.Key{}, apierr.ErrNotFound
	}
	return *key, nil
}

func (m *mapStore) RecordKeyUse(context.Context, []driver.KeyUse) error { return nil }

// mapOf returns a mapStore with the same keys as s.
func mapOf(b *testing.B, s *engine) *mapStore {
	m := &mapStore{keys: make(map[driver.Hash]*driver.Key)}
	err := s.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(schema.Keys).ForEach(func(hash, value []byte) error {
			key := new(driver.Key)
			if err := record.DecodeKey(key, hash, value); err != nil {
				return err
			}
			m.keys[key.Hash] = key
			return nil
		})
	})
	if err != nil {
		b.Fatal(err)
	}
	return m
}

// heap returns the number of heap bytes in use after garbage collection.
func heap() int64 {
	for range 3 { // a sync.Pool needs several collections
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// lookUp looks up a token as the floor does.
func lookUp(db *bbolt.DB, token string) error {
	sum := sha256.Sum256([]byte(token))
	return db.View(func(tx *bbolt.Tx) error {
		var value [256]byte
		if copy(value[:], tx.Bucket(schema.Keys).Get(sum[:])) == 0 {
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

// Fill stores count used keys in the given number of accounts, acct_0 and so on. It returns their
// tokens.
func Fill(b *testing.B, s *Store, count, accounts int) []string {
	return fill(b, s.engine, count, accounts)
}

func fill(b *testing.B, s *engine, count, accounts int) []string {
	type made struct {
		key   driver.Key
		row   []byte
		token string
	}
	var all []made
	taken := func(key driver.Key) { all = append(all, made{key, record.AccountKey(key.Account, key.ID), ""}) }
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
	// Write the rows of each bucket in key order, which is faster.
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
		if err := batch.Put(schema.Accounts, m.row, m.key.Hash.Sum[:]); err != nil {
			return err
		}
		activity := driver.ActivityOf(m.key.Scopes, scopes.Of(scopes.FilesRead), m.key.CreatedAt).
			Add(driver.ActivityFrom(netip.MustParseAddr("192.0.2.1"), m.key.CreatedAt), true)
		return putUses(batch, m.row, record.Uses{Any: m.key.CreatedAt, Current: m.key.CreatedAt, Activity: activity}, record.Uses{})
	})
	store(func(a, b made) int { return bytes.Compare(a.key.Hash.Sum[:], b.key.Hash.Sum[:]) }, func(batch *batch, m *made) error {
		return batch.Put(schema.Keys, m.key.Hash.Sum[:], record.EncodeKey(&m.key))
	})
	tokens := make([]string, count)
	for i, m := range all {
		tokens[i] = m.token
	}
	rand.Shuffle(count, func(i, j int) { tokens[i], tokens[j] = tokens[j], tokens[i] }) // they are sorted by hash
	return tokens
}

// A collector is a store that only collects the created keys.
type collector struct {
	driver.KeyStore
	make func(driver.Key)
}

func (c collector) CreateKey(_ context.Context, key driver.Key, _ driver.CreateOptions) error {
	c.make(key)
	return nil
}
