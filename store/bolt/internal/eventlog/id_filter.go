package eventlog

import (
	"math/bits"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
)

const (
	runsPerFilter = 64
	idPlaces      = 16 * idsPerRun // bits per run in a filter: 16 for each ID
	placesPerID   = 5
)

// An idFilter reports which of 64 runs may contain a key. It holds one Bloom filter per run, stored
// so that bit i of each word belongs to run i; a lookup in all runs reads placesPerID words. The
// filter of a run has about 1.4 false positives per thousand keys, and no false negatives.
type idFilter struct {
	runs   []uint64 // in order of addition
	kept   uint64   // bit i is set unless runs[i] was dropped
	places []uint64 // bit i is set if runs[i] has a key at this place
}

// filterOf adds a run to the last filter, or to a new filter if the last one is full, and returns
// the filter.
func (x *idIndex) filterOf(run uint64) *idFilter {
	if n := len(x.filters); n == 0 || len(x.filters[n-1].runs) == runsPerFilter {
		x.filters = append(x.filters, &idFilter{places: make([]uint64, idPlaces)})
	}
	f := x.filters[len(x.filters)-1]
	f.runs = append(f.runs, run)
	f.kept |= f.last()
	return f
}

// dropRun removes the oldest run.
func (x *idIndex) dropRun() {
	x.mu.Lock()
	defer x.mu.Unlock()
	f := x.filters[0]
	if f.kept &= f.kept - 1; f.kept == 0 {
		x.filters = x.filters[1:]
	}
}

// last returns the bit of the run added last.
func (f *idFilter) last() uint64 { return 1 << (len(f.runs) - 1) }

// place returns the index of the key's place number i.
func place(key uint64, i int) uint64 { return (key + uint64(i)*(key>>32|1)) % idPlaces }

// add adds the keys of the entries to the run added last.
func (f *idFilter) add(entries []record.IDEntry) {
	for _, e := range entries {
		for i := range placesPerID {
			f.places[place(e.Key, i)] |= f.last()
		}
	}
}

// addAll makes the run added last positive for every key.
func (f *idFilter) addAll() {
	for i := range f.places {
		f.places[i] |= f.last()
	}
}

// appendRuns appends the runs that may contain the key.
func (f *idFilter) appendRuns(runs []uint64, key uint64) []uint64 {
	may := f.kept
	for i := 0; i < placesPerID && may != 0; i++ {
		may &= f.places[place(key, i)]
	}
	for ; may != 0; may &= may - 1 {
		runs = append(runs, f.runs[bits.TrailingZeros64(may)])
	}
	return runs
}
