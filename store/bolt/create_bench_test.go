package bolt_test

import (
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/bolt"
)

// BenchmarkCreateKey measures what a limit and an idempotency key add to the creation
// of keys by 64 at a time, fsynced, in an account that has 10,000 already. The three
// take turns.
func BenchmarkCreateKey(b *testing.B) {
	const creators, each = 64, 20
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
		took   time.Duration
	}{
		{"unlimited", -1, func() apikeys.CreateParams { return apikeys.CreateParams{} }, 0},
		{"limited", 1 << 40, func() apikeys.CreateParams { return apikeys.CreateParams{} }, 0},
		{"limited-idempotent", 1 << 40, func() apikeys.CreateParams {
			return apikeys.CreateParams{IdempotencyKey: fmt.Sprint("request-", requests.Add(1))}
		}, 0},
	}
	rounds := 0
	for b.Loop() {
		rounds++
		for i := range contenders {
			c := &contenders[i]
			service, err := apikeys.New(store, apikeys.Config{MaxPerAccount: c.most})
			if err != nil {
				b.Fatal(err)
			}
			_, took := race(b, creators, each*creators, func() error {
				params := c.params()
				params.Name, params.Scopes = "benchmark", scopes.Of(scopes.FilesRead)
				_, _, err := service.Create(b.Context(), "acct_0", params)
				return err
			})
			c.took += took
			service.Close()
		}
	}
	b.ReportMetric(0, "ns/op")
	for _, c := range contenders {
		b.ReportMetric(float64(c.took)/float64(rounds*each*creators), c.name+"-ns")
		b.ReportMetric(float64(c.took)/float64(contenders[0].took), c.name+"/unlimited")
	}
}
