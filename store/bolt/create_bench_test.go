package bolt_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/bolt"
)

// BenchmarkCreateKey measures how much a limit and an idempotency key add to the time to create a
// key. With fsync, 64 goroutines create keys concurrently in an account with 10,000 keys. The
// result is the median time to create a key. The three variants take turns.
func BenchmarkCreateKey(b *testing.B) {
	const creators, each = 64, 5
	store, err := bolt.Open(filepath.Join(b.TempDir(), "keys.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	bolt.Fill(b, store, 10_000, 1)
	var requests atomic.Int64
	contenders := []struct {
		name   string
		most   int
		params func() apikeys.CreateParams
		waits  []time.Duration
	}{
		{"unlimited", -1, func() apikeys.CreateParams { return apikeys.CreateParams{} }, nil},
		{"limited", 1 << 40, func() apikeys.CreateParams { return apikeys.CreateParams{} }, nil},
		{"limited-idempotent", 1 << 40, func() apikeys.CreateParams {
			return apikeys.CreateParams{IdempotencyKey: fmt.Sprint("request-", requests.Add(1))}
		}, nil},
	}
	for b.Loop() {
		for i := range contenders {
			c := &contenders[i]
			service, err := apikeys.New(store, apikeys.Config{MaxPerAccount: c.most})
			if err != nil {
				b.Fatal(err)
			}
			waits, _ := race(b, creators, each*creators, func() error {
				params := c.params()
				params.Name, params.Scopes = "benchmark", scopes.Of(scopes.FilesRead)
				_, _, err := service.Create(b.Context(), "acct_0", params)
				return err
			})
			c.waits = append(c.waits, waits...)
			service.Close()
		}
	}
	b.ReportMetric(0, "ns/op")
	median := func(i int) float64 {
		slices.Sort(contenders[i].waits)
		return float64(contenders[i].waits[len(contenders[i].waits)/2])
	}
	b.ReportMetric(median(0)/1e6, "unlimited-ms")
	b.ReportMetric(median(1)/median(0), "limited/unlimited")
	b.ReportMetric(median(2)/median(0), "limited-idempotent/unlimited")
}
