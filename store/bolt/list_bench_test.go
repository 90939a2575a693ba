package bolt_test

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/bolt"
)

// BenchmarkListKeys measures a list of 100 keys: from random positions in one account with more and
// more keys, and in one of more and more accounts with 100 keys each. It measures KeyService.List,
// and whole requests with authentication and JSON but without the network. The target is 1 ms,
// regardless of the number of keys.
func BenchmarkListKeys(b *testing.B) {
	for _, c := range []struct{ keys, accounts int }{
		{100, 1}, {10_000, 1}, {100_000, 1}, {1_000_000, 1},
		{10_000, 100}, {100_000, 1000}, {1_000_000, 10_000},
	} {
		b.Run(fmt.Sprintf("keys=%d/accounts=%d", c.keys, c.accounts), func(b *testing.B) {
			if testing.Short() && c.keys > 10_000 {
				b.Skip("takes half a minute to prepare: run without -short")
			}
			store, err := bolt.Open(filepath.Join(b.TempDir(), "keys.db"))
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = store.Close() }()
			bolt.Fill(b, store, c.keys, c.accounts)
			config := storageapi.Config{Store: store}
			config.Keys.MaxPerAccount = -1
			api, err := storageapi.NewHandler(config)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = api.Close() }()

			// Start anywhere in a single account, but at the end of one of many accounts.
			starts := []string{""}
			for c.accounts == 1 {
				page, err := api.Keys.List(b.Context(), "acct_0", apikeys.KeyQuery{After: starts[len(starts)-1], Limit: 1000})
				if err != nil {
					b.Fatal(err)
				}
				if len(page.Keys) < 1000 {
					break
				}
				starts = append(starts, page.Keys[rand.IntN(900)].ID)
			}
			tokens := map[string]string{}
			for range min(c.accounts, 100) {
				account := fmt.Sprint("acct_", rand.IntN(c.accounts))
				_, token, err := api.Keys.Create(b.Context(), account, apikeys.CreateParams{Name: "reader", Scopes: scopes.Of(scopes.AccountRead)})
				if err != nil {
					b.Fatal(err)
				}
				tokens[account] = token.Reveal()
			}

			var lists, requests []time.Duration
			for b.Loop() {
				for account, token := range tokens {
					after := starts[rand.IntN(len(starts))]
					start := time.Now()
					page, err := api.Keys.List(b.Context(), account, apikeys.KeyQuery{After: after, Limit: 100})
					lists = append(lists, time.Since(start))
					if err != nil || len(page.Keys) < 100 {
						b.Fatalf("%d keys, %v", len(page.Keys), err)
					}
					path := "/v2/api-keys?limit=100"
					if after != "" {
						path += "&cursor=" + base64.RawURLEncoding.EncodeToString([]byte(after))
					}
					r := httptest.NewRequest(http.MethodGet, path, nil)
					r.Header.Set("Api-Key", token)
					w := httptest.NewRecorder()
					start = time.Now()
					api.ServeHTTP(w, r)
					requests = append(requests, time.Since(start))
					if w.Code != http.StatusOK {
						b.Fatal(w.Code, w.Body)
					}
				}
			}
			b.ReportMetric(0, "ns/op")
			for name, times := range map[string][]time.Duration{"list": lists, "request": requests} {
				slices.Sort(times)
				b.ReportMetric(float64(times[len(times)/2])/1e3, name+"-p50-µs")
				b.ReportMetric(float64(times[len(times)*99/100])/1e3, name+"-p99-µs")
			}
		})
	}
}
