package eventlog

import (
	"math/bits"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
)

const (
	runsPerFilter = 64
	idPlaces      = 16 * idsPerRun // places of each run in a filter: 16 bits an ID
	placesPerID   = 5
)

// An idFilter tells which of 64 runs may have a key. It consists of a Bloom filter per run,
// transposed, so that a lookup in all runs reads placesPerID words. A run has one false positive
// per thousand keys, and no false negatives.
type idFilter struct {
	runs   []uint64 // in order of addition
	kept   uint64   // bit i: runs[i] is not dropped
	places []uint64 // bit i: runs[i] has a key at this place
}

// filterOf adds a run, and returns the filter that contains it as its last run.
func (x *idIndex) filterOf(run uint64) *idFilter {
	if n := len(x.filters); n == 0 || len(x.filters[n-1].runs) == runsPerFilter {
		x.filters = append(x.filters, &idFilter{places: make([]uint64, idPlaces)})
	}
	f := x.filters[len(x.filters)-1]
	f.runs = append(f.runs, run)
	f.kept |= f.last()
	return f
}

// dropRun drops the oldest run.
func (x *idIndex) dropRun() {
	x.mu.Lock()
	defer x.mu.Unlock()
	f := x.filters[0]
	if f.kept &= f.kept - 1; f.kept == 0 {
		x.filters = x.filters[1:]
	}
}

// last returns the bit of the last added run.
func (f *idFilter) last() uint64 { return 1 << (len(f.runs) - 1) }

// place returns one of the places of a key.
func place(key uint64, i int) uint64 { return (key + uint64(i)*(key>>32|1)) % idPlaces }

// add adds the keys of entries of the last run.
func (f *idFilter) add(entries []record.IDEntry) {
	for _, e := range entries {
		for i := range placesPerID {
			f.places[place(e.Key, i)] |= f.last()
		}
	}
}

// addAll makes every key a positive in the last run.
func (f *idFilter) addAll() {
	for i := range f.places {
		f.places[i] |= f.last()
	}
}

// appendRuns appends the runs that may have a key.
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
