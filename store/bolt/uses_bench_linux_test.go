package bolt_test

import (
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/bolt"
)

// BenchmarkUses measures the bytes written to the file ("MB") when the last uses of 65,536 keys
// among 1 M are written, as a service does every minute. All keys have been used before. Each uses
// a scope from a known network.
func BenchmarkUses(b *testing.B) {
	count, used := 1_000_000, 1<<16
	if testing.Short() {
		count, used = 10_000, 655
	}
	s, err := bolt.Open(filepath.Join(b.TempDir(), "keys.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	tokens := bolt.Fill(b, s, count, 1000)
	service, err := apikeys.New(s, apikeys.Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer service.Close()
	var bytes float64
	for b.Loop() {
		rand.Shuffle(count, func(i, j int) { tokens[i], tokens[j] = tokens[j], tokens[i] })
		for _, token := range tokens[:used] {
			p, err := service.VerifyFrom(b.Context(), token, "192.0.2.1")
			if err != nil {
				b.Fatal(err)
			}
			service.RecordScopes(&p, scopes.Of(scopes.FilesRead))
		}
		before := written(b)
		if err := service.WriteUses(b.Context()); err != nil {
			b.Fatal(err)
		}
		bytes += written(b) - before
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(bytes/float64(b.N)/1e6, "MB")
}
