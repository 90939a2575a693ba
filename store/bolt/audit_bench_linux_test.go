package bolt_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/driver"
)

// BenchmarkAuditEntries counts the bytes written to the file when a single key is created in an
// account with 3,200 keys: without an audit entry, with an entry, and with a pending entry.
func BenchmarkAuditEntries(b *testing.B) {
	const keys = 3200
	for name, entry := range map[string]*audit.Entry{"none": nil, "kept": {}, "pending": {Pending: true}} {
		b.Run(name, func(b *testing.B) {
			store, err := bolt.Open(filepath.Join(b.TempDir(), "keys.db"))
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = store.Close() }()
			create := func(i int) {
				key := driver.Key{ID: fmt.Sprintf("key_%026d", i), Account: "acct_0", Name: "benchmark", Scopes: scopes.Specified()}
				key.Hash.Sum[0], key.Hash.Sum[1], key.Hash.Sum[2] = byte(i*7), byte(i>>8), byte(i>>16)
				options := driver.CreateOptions{}
				if entry != nil {
					options.AuditEntry = audit.Entry{
						ID: fmt.Sprintf("aud_%026d", i), Account: key.Account, Action: audit.KeyCreated, Pending: entry.Pending,
						Target: audit.Target{Kind: audit.TargetKey, ID: key.ID}, Actor: audit.Actor{Kind: audit.ActorKey, ID: key.ID}, ClientAddress: "192.0.2.1",
					}
				}
				if err := store.CreateKey(b.Context(), key, options); err != nil {
					b.Fatal(err)
				}
			}
			for i := range keys {
				create(i)
			}
			// Purge as a service does regularly, because purging merges the root bucket.
			if _, err := store.Purge(b.Context(), driver.Purge{Limit: 1000}); err != nil {
				b.Fatal(err)
			}
			before, n := written(b), keys
			for b.Loop() {
				create(n)
				n++
			}
			b.ReportMetric((written(b)-before)/float64(n-keys), "B/key")
		})
	}
}
