package bolt_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/bolt"
)

// BenchmarkNotices counts what is written to the file for a key that is created alone, in an
// account of 1,000: without a notice, with one, and with one that waits to be taken.
func BenchmarkNotices(b *testing.B) {
	for name, notice := range map[string]*notices.Notice{"none": nil, "kept": {}, "pending": {Pending: true}} {
		b.Run(name, func(b *testing.B) {
			store, err := bolt.Open(filepath.Join(b.TempDir(), "keys.db"))
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = store.Close() }()
			create := func(i int) {
				key := apikeys.Key{ID: fmt.Sprintf("key_%026d", i), Account: "acct_0", Name: "benchmark", Scopes: scopes.All()}
				key.Hash.Sum[0], key.Hash.Sum[1], key.Hash.Sum[2] = byte(i*7), byte(i>>8), byte(i>>16)
				options := apikeys.CreateOptions{}
				if notice != nil {
					options.Notice = notices.Notice{
						ID: fmt.Sprintf("ntc_%026d", i), Account: key.Account, Action: notices.KeyCreated, Pending: notice.Pending,
						Target: notices.Target{Kind: notices.TargetKey, ID: key.ID}, Actor: notices.Actor{Kind: notices.ActorKey, ID: key.ID}, ClientAddress: "192.0.2.1",
					}
				}
				if err := store.CreateKey(b.Context(), key, options); err != nil {
					b.Fatal(err)
				}
			}
			for i := range 1000 {
				create(i)
			}
			before, n := written(b), 1000
			for b.Loop() {
				create(n)
				n++
			}
			b.ReportMetric((written(b)-before)/float64(n-1000), "B/key")
		})
	}
}
