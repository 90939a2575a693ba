package bolt

import (
	"math/bits"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
)

const (
	runsPerFilter = 64
	idPlaces      = 16 * idsPerRun // of each run in a filter: 16 bits an ID
	placesPerID   = 5
)

// An idFilter says which of 64 runs may have a key. It is a Bloom filter of each run, transposed, so
// that a key is looked for in all of them by reading placesPerID words: one key in a thousand is taken for
// one that a run has, and none the other way round.
type idFilter struct {
	runs   uint64   // bit i: run i of them is whole, and not dropped
	places []uint64 // bit i: run i has a key at this place
}

// filter returns the filter of a run.
func (s *eventIDs) filter(run uint32) *idFilter {
	i := int(run / runsPerFilter)
	for len(s.filters) <= i {
		s.filters = append(s.filters, nil)
	}
	if s.filters[i] == nil {
		s.filters[i] = &idFilter{places: make([]uint64, idPlaces)}
	}
	return s.filters[i]
}

// drop notes that a run is not looked for any more.
func (s *eventIDs) drop(run uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := run / runsPerFilter
	if int(i) >= len(s.filters) || s.filters[i] == nil {
		return // it was cut short
	}
	if s.filters[i].runs &^= idBit(run); s.filters[i].runs == 0 && i < s.run/runsPerFilter {
		s.filters[i] = nil
	}
}

func idBit(run uint32) uint64 { return 1 << (run % runsPerFilter) }

// place returns one of the places of a key.
func place(key uint64, i int) uint64 { return (key + uint64(i)*(key>>32|1)) % idPlaces }

// add adds the keys of entries of a run.
func (f *idFilter) add(run uint32, entries []record.IDEntry) {
	for _, e := range entries {
		for i := range placesPerID {
			f.places[place(e.Key, i)] |= idBit(run)
		}
	}
}

// addAll has the run taken for one that may have any key.
func (f *idFilter) addAll(run uint32) {
	for i := range f.places {
		f.places[i] |= idBit(run)
	}
}

// has notes that a run is whole.
func (f *idFilter) has(run uint32) { f.runs |= idBit(run) }

// appendRuns appends the runs that may have a key. The first run of the filter has that number.
func (f *idFilter) appendRuns(runs []uint32, first uint32, key uint64) []uint32 {
	may := f.runs
	for i := 0; i < placesPerID && may != 0; i++ {
		may &= f.places[place(key, i)]
	}
	for ; may != 0; may &= may - 1 {
		runs = append(runs, first+uint32(bits.TrailingZeros64(may)))
	}
	return runs
}
