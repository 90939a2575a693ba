package bolt

import (
	"cmp"
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"sort"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
)

// How many ids begin a merge: the least if they touch few rows, as those that ascend do, and
// up to the most if they are spread over many. While one merge is under way half as many
// arrive, so that [eventIDs] have up to maxMerge*3/2 ids in memory, of some 45 bytes each:
// 18 MB. Open reads as many events, which takes it about 0.3 s.
const (
	minMerge = 16 << 10
	maxMerge = 256 << 10

	fewPerRow  = 16 // fewer ids to a row that a merge changes, and the next one takes more
	manyPerRow = 32 // more, and it takes fewer

	mergeStep = 64             // ids that arrive before the merge goes on
	mergeMost = 4096           // ids that are merged at a time
	minRow    = 8              // a row with fewer joins the next one
	lastRow   = math.MaxUint64 // the row that is always there
)

// mergeIDs takes a step of a merge if ids have arrived: it merges twice as many as those, so
// that publishers never wait for many at a time, and a merge ends before too many arrive.
func (s *Store) mergeIDs(b *batch) error {
	ids := &s.ids
	if b.merged || len(b.added) == 0 || ids.arrived < mergeStep {
		return nil
	}
	b.merged = true
	if ids.merging.count == 0 {
		if ids.newer.count >= ids.limit {
			b.AfterCommit(ids.begin)
		}
		return nil
	}
	budget := min(2*ids.arrived, mergeMost)
	m := merge{batch: b, rows: b.tx.Bucket(bucketEventIDs), set: ids.merging, gone: metaNumber(b.tx, keyIDsGone), budget: budget}
	next, done, err := m.run(ids.next)
	if err != nil {
		return err
	}
	key, value := keyIDsMerging, mergeState{last: m.set.last, next: next, limit: uint64(ids.limit)}.encode()
	if done {
		key, value = keyIDsMerged, record.NumberKey(m.set.last+1)
	}
	if err := b.Put(bucketMeta, key, value); err != nil {
		return err
	}
	b.AfterCommit(func() {
		// Those that this commit adds have arrived after the step.
		ids.next, ids.arrived, ids.rows = next, ids.arrived-budget/2, ids.rows+m.changed
		if done {
			ids.end()
		}
	})
	return nil
}

// A mergeState is in the file where a merge is under way, for [eventIDs.load].
type mergeState struct {
	last  uint64 // number of those that are merged
	next  uint64 // key to go on with
	limit uint64 // so many ids begin a merge
}

func (m mergeState) encode() []byte {
	value := record.NumberKey(m.last)
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(value, m.next), m.limit)
}

// decodeMerge returns the zero state, of no merge, for what is none.
func decodeMerge(value []byte) (m mergeState) {
	if len(value) != 24 {
		return m
	}
	return mergeState{binary.BigEndian.Uint64(value), binary.BigEndian.Uint64(value[8:]), binary.BigEndian.Uint64(value[16:])}
}

// begin begins to merge the ids that are there.
func (s *eventIDs) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.merging, s.newer = s.newer, new(idSet)
	s.merging.sort()
	s.next, s.rows, s.arrived = 0, 0, 0
}

// end ends a merge.
func (s *eventIDs) end() {
	switch {
	case s.merging.count < fewPerRow*s.rows:
		s.limit = min(2*s.limit, maxMerge)
	case s.merging.count > manyPerRow*s.rows:
		s.limit = max(s.limit/2, minMerge)
	}
	for _, chunk := range s.merging.sorted {
		i := sort.Search(len(chunk), func(i int) bool { return chunk[i].Key >= numberKeys })
		if i > 0 {
			s.top = max(s.top, chunk[i-1].Key)
		}
	}
	maps.DeleteFunc(s.erased, func(n uint64, _ bool) bool { return n <= s.merging.last })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.merging = new(idSet)
}

// A merge changes rows of bucketEventIDs. A row has the keys after the one that the row
// before it stands under, up to its own.
type merge struct {
	*batch
	rows    *bbolt.Bucket
	set     *idSet // what is merged; nil: rows are looked through for purged ids
	gone    uint64 // numbers before it are purged
	budget  int    // entries to be merged, or rows to be looked at
	changed int    // rows
}

// run goes on from a key, and returns the one to go on with, or that it is done.
func (m *merge) run(from uint64) (next uint64, done bool, err error) {
	at := make([]int, 0, 64) // in each sorted chunk
	if m.set != nil {
		for _, chunk := range m.set.sorted {
			at = append(at, sort.Search(len(chunk), func(i int) bool { return chunk[i].Key >= from }))
		}
	}
	var carried []record.IDEntry // of rows that join the next one
	for {
		if len(carried) == 0 {
			if m.set != nil {
				if from, done = m.first(at); done {
					return 0, true, nil
				}
			}
			if m.budget <= 0 {
				return from, false, nil
			}
		}
		k, value := m.rows.Cursor().Seek(record.NumberKey(from))
		if len(k) != 8 {
			return 0, false, record.ErrCorrupt
		}
		row := binary.BigEndian.Uint64(k)
		entries, damaged := record.AppendIDEntries(nil, value)
		if damaged != nil {
			entries = nil // one record that cannot be read must not keep the others from being merged
		}
		found := len(entries)
		entries = slices.DeleteFunc(entries, func(e record.IDEntry) bool { return e.Number < m.gone })
		change := damaged != nil || len(entries) != found || len(carried) > 0
		end := row
		if m.set != nil {
			end = m.most(at, from, row)
		}
		if end < row { // the row is divided: what is after end stays in it
			i := sort.Search(len(entries), func(i int) bool { return entries[i].Key > end })
			if change = change || i > 0; change {
				if err := m.Put(bucketEventIDs, record.NumberKey(row), record.EncodeIDEntries(entries[i:])); err != nil {
					return 0, false, err
				}
			}
			entries = entries[:i]
		}
		entries = append(entries, carried...)
		if m.set != nil {
			merged := len(entries)
			entries = m.take(entries, at, end)
			merged = len(entries) - merged
			m.budget -= merged
			change = change || merged > 0
		} else {
			m.budget--
		}
		if carried = carried[:0]; change {
			m.changed++
			slices.SortFunc(entries, compareIDs)
			entries = slices.Compact(entries)
			switch {
			case end < row:
				if err := m.write(end, entries); err != nil {
					return 0, false, err
				}
			case len(entries) < minRow && row != lastRow:
				carried = append(carried, entries...)
				if err := m.Delete(bucketEventIDs, record.NumberKey(row)); err != nil {
					return 0, false, err
				}
			default:
				if err := m.write(row, entries); err != nil {
					return 0, false, err
				}
			}
		}
		if end == lastRow {
			return 0, true, nil
		}
		from = end + 1
	}
}

// first returns the least key that is not merged yet, or that there is none.
func (m *merge) first(at []int) (key uint64, done bool) {
	key, done = math.MaxUint64, true
	for i, chunk := range m.set.sorted {
		if at[i] < len(chunk) {
			key, done = min(key, chunk[at[i]].Key), false
		}
	}
	return key, done
}

// most returns the key up to which no more than mergeMost entries are to be merged, from a
// key on: the row's, or a lesser one if as many as that belong into one row, as those that
// ascend do.
func (m *merge) most(at []int, from, row uint64) uint64 {
	count := func(key uint64) (n int) {
		for i, chunk := range m.set.sorted {
			chunk = chunk[at[i]:]
			n += sort.Search(len(chunk), func(i int) bool { return chunk[i].Key > key })
		}
		return n
	}
	if count(row) <= mergeMost {
		return row
	}
	low, high := from, row // the least key up to which there are more is between them
	for low < high {
		if middle := low + (high-low)/2; count(middle) > mergeMost {
			high = middle
		} else {
			low = middle + 1
		}
	}
	if low > from && count(low-1) > 0 {
		low--
	}
	return low
}

// take appends the entries up to a key, except those whose numbers are purged.
func (m *merge) take(entries []record.IDEntry, at []int, key uint64) []record.IDEntry {
	for i, chunk := range m.set.sorted {
		for ; at[i] < len(chunk) && chunk[at[i]].Key <= key; at[i]++ {
			if e := chunk[at[i]]; e.Number >= m.gone && !m.store.ids.erased[e.Number] {
				entries = append(entries, chunk[at[i]])
			}
		}
	}
	return entries
}

// write writes the entries of a row, as several if they are many: as full ones where more
// will come after them only, and else of the same size.
func (m *merge) write(row uint64, entries []record.IDEntry) error {
	size := record.MaxIDEntries
	if n := len(entries); n > size && entries[0].Key >= numberKeys {
		size = (n + (n-1)/size) / ((n-1)/size + 1)
	}
	for len(entries) > record.MaxIDEntries {
		n := size
		for n < len(entries) && entries[n].Key == entries[n-1].Key { // they stand in one row
			n++
		}
		if n == len(entries) {
			break
		}
		if err := m.Put(bucketEventIDs, record.NumberKey(entries[n-1].Key), record.EncodeIDEntries(entries[:n])); err != nil {
			return err
		}
		entries = entries[n:]
	}
	return m.Put(bucketEventIDs, record.NumberKey(row), record.EncodeIDEntries(entries))
}

// sweepIDs looks through some of the rows for ids that are purged, if they may be many.
func (s *Store) sweepIDs(b *batch, left *int) error {
	gone, swept := metaNumber(b.tx, keyIDsGone), metaNumber(b.tx, keyIDsSwept)
	end := b.tx.Bucket(bucketEvents).Sequence() + 1
	if !s.ids.sweeping && gone-swept < max((end-swept)/4, minMerge) {
		return nil
	}
	looked := cmp.Or(min(*left, mergeMost), 1)
	m := merge{batch: b, rows: b.tx.Bucket(bucketEventIDs), gone: gone, budget: looked}
	next, done, err := m.run(s.ids.swept)
	if err != nil {
		return err
	}
	if done {
		if err := b.Put(bucketMeta, keyIDsSwept, record.NumberKey(gone)); err != nil {
			return err
		}
	}
	*left -= looked - max(m.budget, 0)
	b.AfterCommit(func() { s.ids.sweeping, s.ids.swept = !done, next })
	return nil
}
