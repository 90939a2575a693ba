package scopes_test

import (
	"testing"

	"github.com/storageapi/storageapi/scopes"
)

// Kept from the compiler, which would do without what nobody looks at.
var (
	allocsSet  scopes.Set
	allocsBool bool
	allocsInt  int
)

func TestSetOperationsDoNotAllocate(t *testing.T) {
	all, some := scopes.All(), scopes.Of(scopes.SecretsRead, scopes.FilesRead)
	operations := map[string]func(){
		"Of":         func() { allocsSet = scopes.Of(scopes.FilesRead, scopes.AccountRead) },
		"With":       func() { allocsSet = some.With(scopes.AccountRead) },
		"Without":    func() { allocsSet = all.Without(scopes.AccountRead) },
		"Has":        func() { allocsBool = some.Has(scopes.FilesRead) },
		"Covers":     func() { allocsBool = all.Covers(some) },
		"Intersects": func() { allocsBool = all.Intersects(some) },
		"Len":        func() { allocsInt = all.Len() },
		"Parse":      func() { _, _ = scopes.Parse("account:read") },
		"All": func() {
			for s := range all.All() {
				allocsInt += int(s)
			}
		},
	}
	for name, operation := range operations {
		if n := testing.AllocsPerRun(100, operation); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

func BenchmarkCovers(b *testing.B) {
	all, some := scopes.All(), scopes.Of(scopes.SecretsRead, scopes.FilesRead)
	b.ReportAllocs()
	for b.Loop() {
		allocsBool = all.Covers(some)
	}
}

func BenchmarkParseSet(b *testing.B) {
	names := scopes.All().Names()
	b.ReportAllocs()
	for b.Loop() {
		allocsSet, _ = scopes.ParseSet(names)
	}
}
