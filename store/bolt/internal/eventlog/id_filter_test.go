package eventlog

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
)

// TestIDFilter checks that the filter reports each key of a run, and few other keys, also after
// another run has been dropped.
func TestIDFilter(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var s idIndex
	s.filterOf(7).add(nil)
	var entries []record.IDEntry
	for n := range uint64(idsPerRun) {
		entries = append(entries, record.IDEntry{Key: random.Uint64(), Number: n})
	}
	s.filterOf(9).add(entries)
	runsOf := func(key uint64) []uint64 { return s.find("acct", "id", key).runs }
	for _, e := range entries {
		if !slices.Equal(runsOf(e.Key), []uint64{9}) {
			t.Fatalf("the key %x is not found", e.Key)
		}
	}
	wrong := 0
	for range 100_000 {
		wrong += len(runsOf(random.Uint64()))
	}
	if wrong > 300 { // the expected number is about 140
		t.Errorf("%d of 100,000 other keys are taken for known", wrong)
	}
	s.dropRun() // the run without these keys
	s.dropRun()
	if runs := runsOf(entries[0].Key); runs != nil {
		t.Errorf("a run that is dropped is looked at: %v", runs)
	}
}
