package auth_test

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
)

// BenchmarkRevocation measures the time from the commit of a key's deletion until the contexts of
// its requests end, while 10,000 requests with 1,000 keys are running. Each iteration deletes one
// key.
func BenchmarkRevocation(b *testing.B) {
	const keyCount, requestsOfKey = 1000, 10
	file, err := bolt.Open(filepath.Join(b.TempDir(), "storage.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	for name, store := range map[string]driver.KeyStore{"memory": memory.New(), "bolt": file} {
		b.Run(name, func(b *testing.B) {
			keys, err := apikeys.New(store, apikeys.Config{MaxPerAccount: -1})
			if err != nil {
				b.Fatal(err)
			}
			defer keys.Close()
			var committed time.Time
			keys.OnChange(func(string, string) { committed = time.Now() })
			guard, err := auth.New(keys, auth.Config{})
			if err != nil {
				b.Fatal(err)
			}
			ends := make(chan time.Time, requestsOfKey)
			entered := make(chan struct{})
			handler := guard.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				done := r.Context().Done()
				entered <- struct{}{}
				<-done
				ends <- time.Now()
			}))
			var group sync.WaitGroup
			start := func() (id string) {
				key, token, err := keys.Create(b.Context(), "acct", apikeys.CreateParams{Name: "k", Scopes: scopes.Specified()})
				if err != nil {
					b.Fatal(err)
				}
				for range requestsOfKey {
					group.Go(func() { handler.ServeHTTP(httptest.NewRecorder(), request(token.Reveal())) })
					<-entered
				}
				return key.ID
			}
			var waits []time.Duration
			end := func(id string) {
				if err := keys.Delete(b.Context(), "acct", id, apikeys.DeleteParams{}); err != nil {
					b.Fatal(err)
				}
				for range requestsOfKey {
					waits = append(waits, (<-ends).Sub(committed))
				}
			}
			var ids []string
			for range keyCount {
				ids = append(ids, start())
			}
			for i := 0; b.Loop(); i++ {
				id := &ids[i%keyCount]
				end(*id)
				*id = start()
			}
			slices.Sort(waits)
			b.ReportMetric(float64(waits[len(waits)/2].Nanoseconds()), "p50-ns")
			b.ReportMetric(float64(waits[len(waits)*99/100].Nanoseconds()), "p99-ns")
			b.ReportMetric(0, "ns/op") // hides ns/op, which would include the preparation
			for _, id := range ids {
				end(id)
			}
			group.Wait()
		})
	}
}
