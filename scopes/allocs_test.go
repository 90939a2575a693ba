package scopes_test

import (
	"slices"
	"testing"

	"github.com/storageapi/storageapi/scopes"
)

// The compiler could remove calls whose results are not assigned to these variables.
var (
	allocsSet  scopes.Set
	allocsBool bool
	allocsInt  int
)

func TestSetOperationsDoNotAllocate(t *testing.T) {
	all, some := scopes.Specified(), scopes.Of(scopes.SecretsRead, scopes.FilesRead)
	operations := map[string]func(){
		"Of":         func() { allocsSet = scopes.Of(scopes.FilesRead, scopes.AccountRead) },
		"With":       func() { allocsSet = some.With(scopes.AccountRead) },
		"Without":    func() { allocsSet = all.Without(scopes.AccountRead) },
		"Has":        func() { allocsBool = some.Has(scopes.FilesRead) },
		"Covers":     func() { allocsBool = all.Covers(some) },
		"Intersects": func() { allocsBool = all.Intersects(some) },
		"Len":        func() { allocsInt = all.Len() },
		"Parse":      func() { _, _ = plain.Parse("account:read") },
		"All": func() {
			for s := range all.All() {
				allocsInt += len(s)
			}
		},
	}
	mixed, every := vocabulary(t).All(), scopes.Of(teams(1), scopes.FilesRead)
	order, names := mixed.Pack()
	last, v := teams(50), vocabulary(t)
	for name, operation := range map[string]func(){
		"Has":        func() { allocsBool = mixed.Has(last) },
		"Covers":     func() { allocsBool = mixed.Covers(every) },
		"Intersects": func() { allocsBool = mixed.Intersects(every) },
		"Len":        func() { allocsInt = mixed.Len() },
		"Parse":      func() { _, _ = v.Parse("teams50:read") },
		"Pack":       func() { _, _ = mixed.Pack() },
		"Unpack":     func() { allocsSet, _ = scopes.Unpack(order, names) },
		"Resolve":    func() { allocsSet = v.Resolve(mixed) },
		"All": func() {
			for s := range mixed.All() {
				allocsInt += len(s)
			}
		},
	} {
		operations[name+" of a host's"] = operation
	}
	for name, operation := range operations {
		if n := testing.AllocsPerRun(100, operation); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

// BenchmarkSet measures Has, Covers, Resolve and Unpack for three sets: all scopes in section 5,
// three scopes of which two belong to a host, and all 64 scopes. Each request calls Resolve and
// Has.
func BenchmarkSet(b *testing.B) {
	v := vocabulary(b)
	for name, set := range map[string]scopes.Set{
		"specified": scopes.Specified(),
		"three":     scopes.Of(scopes.FilesRead, teams(7), teams(8)),
		"all64":     v.All(),
	} {
		some := scopes.Of(slices.Collect(set.All())[set.Len()-2:]...)
		last := slices.Collect(set.All())[set.Len()-1]
		order, names := set.Pack()
		for operation, ask := range map[string]func(){
			"Has":     func() { allocsBool = set.Has(last) },
			"Covers":  func() { allocsBool = set.Covers(some) },
			"Resolve": func() { allocsSet = v.Resolve(set) },
			"Unpack":  func() { allocsSet, _ = scopes.Unpack(order, names) },
		} {
			b.Run(name+"/"+operation, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					ask()
				}
			})
		}
	}
}

func BenchmarkParseSet(b *testing.B) {
	names := scopes.Specified().Names()
	b.ReportAllocs()
	for b.Loop() {
		allocsSet, _ = plain.ParseSet(names)
	}
}
