package bolt

import (
	"bytes"
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
	moveFrom   = 8  // fewer ids to a row of bucketEventIDs, and they stay in bucketRecentIDs

	mergeStep  = 64             // ids that arrive before the merge goes on
	mergeEvery = 4              // and as many as so many commits have: a step changes some pages, however few its ids
	mergeMost  = 4096           // ids that are merged at a time
	minRow     = 8              // a row with fewer joins the next one
	lastRow    = math.MaxUint64 // the row that is always there
)

// mergeIDs takes a step of a merge if enough ids have arrived: it merges twice as many as those, so
// that publishers never wait for many at a time, and a merge ends before too many arrive.
func (s *Store) mergeIDs(b *batch) error {
	ids := &s.ids
	if b.merged || len(b.added) == 0 || ids.arrived < max(mergeStep, ids.wait) {
		return nil
	}
	b.merged = true
	ids.renewFilter(s, b.tx)
	budget := min(2*ids.arrived, mergeMost)
	if err := s.moveIDs(b, budget); err != nil {
		return err
	}
	// Those that this commit adds have arrived after the step.
	b.AfterCommit(func() { ids.arrived, ids.wait = ids.arrived-budget/2, mergeEvery*len(b.added) })
	if ids.merging.count == 0 {
		if ids.newer.count >= ids.limit {
			b.AfterCommit(ids.begin)
		}
		return nil
	}
	some, next, done := ids.some(budget)
	m := newMerge(b, bucketRecentIDs)
	some = slices.DeleteFunc(some, func(e record.IDEntry) bool { return e.Number < m.gone || ids.erased[e.Number] })
	if err := m.add(some); err != nil {
		return err
	}
	key, value := keyIDsMerging, mergeState{last: ids.merging.last, next: next, limit: uint64(ids.limit)}.encode()
	if done {
		key, value = keyIDsMerged, record.NumberKey(ids.merging.last+1)
	}
	if err := b.Put(bucketMeta, key, value); err != nil {
		return err
	}
	b.AfterCommit(func() {
		ids.next, ids.rows = next, ids.rows+m.changed
		if done {
			ids.end()
		}
	})
	return nil
}

// some returns about so many of the entries that are to be merged next, and the key to go on with, or
// that none are left.
func (s *eventIDs) some(count int) (some []record.IDEntry, next uint64, done bool) {
	all := s.merging.all()
	all = all[sort.Search(len(all), func(i int) bool { return all[i].Key >= s.next }):]
	for count < len(all) && count > 0 && all[count].Key == all[count-1].Key { // all of a key are merged at once
		count++
	}
	if count >= len(all) {
		return slices.Clone(all), 0, true
	}
	return slices.Clone(all[:count]), all[count].Key, false
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
	s.merging.all()
	s.next, s.rows = 0, 0
}

// end ends a merge.
func (s *eventIDs) end() {
	switch {
	case s.merging.count < fewPerRow*s.rows:
		s.limit = min(2*s.limit, maxMerge)
	case s.merging.count > manyPerRow*s.rows:
		s.limit = max(s.limit/2, minMerge)
	}
	all := s.merging.all()
	if i := sort.Search(len(all), func(i int) bool { return all[i].Key >= numberKeys }); i > 0 {
		s.top = max(s.top, all[i-1].Key)
	}
	maps.DeleteFunc(s.erased, func(n uint64, _ bool) bool { return n <= s.merging.last })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.merging = new(idSet)
}

// moveIDs goes on through the rows of bucketRecentIDs that have about so many ids, and moves
// those to bucketEventIDs that belong into few rows there.
func (s *Store) moveIDs(b *batch, budget int) error {
	recent, old := b.tx.Bucket(bucketRecentIDs).Cursor(), b.tx.Bucket(bucketEventIDs).Cursor()
	from := s.ids.moving
	var moved []record.IDEntry
	var rows []uint64 // they were in
	for budget > 0 {
		row, value, err := rowWith(recent, from)
		if err != nil {
			return err
		}
		before := len(moved)
		moved, err = record.AppendIDEntries(moved, value)
		budget -= 1 + len(moved) - before
		if err == nil && belongsIntoFew(old, moved[before:]) {
			rows = append(rows, row)
		} else {
			moved = moved[:before]
		}
		if from = row + 1; row == lastRow {
			break // and begin again at 0
		}
	}
	b.AfterCommit(func() { s.ids.moving = from })
	for _, row := range rows {
		if err := b.deleteRow(bucketRecentIDs, row); err != nil {
			return err
		}
	}
	m := newMerge(b, bucketEventIDs)
	return m.add(slices.DeleteFunc(moved, func(e record.IDEntry) bool { return e.Number < m.gone }))
}

// belongsIntoFew reports whether entries, which are sorted, belong into few rows of bucketEventIDs
// for as many as they are.
func belongsIntoFew(c *bbolt.Cursor, entries []record.IDEntry) bool {
	if len(entries) == 0 {
		return false
	}
	k, _ := c.Seek(record.NumberKey(entries[0].Key))
	end := record.NumberKey(entries[len(entries)-1].Key)
	for rows := 1; rows*moveFrom <= len(entries); rows++ {
		if bytes.Compare(k, end) >= 0 {
			return true
		}
		k, _ = c.Next()
	}
	return false
}

// A merge changes rows of a bucket of ids. A row has the keys after the one that the row
// before it stands under, up to its own.
type merge struct {
	*batch
	bucket  []byte
	rows    *bbolt.Cursor
	gone    uint64           // numbers before it are purged
	carried []record.IDEntry // of rows that were deleted, to join the next one
	changed int              // rows
}

func newMerge(b *batch, bucket []byte) *merge {
	return &merge{batch: b, bucket: bucket, rows: b.tx.Bucket(bucket).Cursor(), gone: metaNumber(b.tx, keyIDsGone)}
}

// rowWith returns the row that has a key.
func rowWith(c *bbolt.Cursor, key uint64) (row uint64, value []byte, err error) {
	k, value := c.Seek(record.NumberKey(key))
	if len(k) != 8 {
		return 0, nil, record.ErrCorrupt
	}
	return binary.BigEndian.Uint64(k), value, nil
}

// add adds entries, which are sorted.
func (m *merge) add(entries []record.IDEntry) error {
	for len(entries) > 0 || len(m.carried) > 0 {
		first := entries
		if len(m.carried) > 0 {
			first = m.carried
		}
		row, value, err := rowWith(m.rows, first[0].Key)
		if err != nil {
			return err
		}
		found, _, _ := m.decode(value)
		n := 0
		for n < len(entries) && entries[n].Key <= row {
			n++
		}
		if err := m.change(row, appendJoined(m.carried, found, entries[:n])); err != nil {
			return err
		}
		entries = entries[n:]
	}
	return nil
}

// sweep looks through so many rows from a key on for purged ids, and returns the key to go on with, or that it
// is done.
func (m *merge) sweep(from uint64, left *int) (next uint64, done bool, err error) {
	for ; !done && *left > 0; *left-- {
		row, value, err := rowWith(m.rows, from)
		if err != nil {
			return 0, false, err
		}
		if found, purged, damaged := m.decode(value); purged || damaged || len(m.carried) > 0 {
			if err := m.change(row, append(m.carried, found...)); err != nil {
				return 0, false, err
			}
		}
		from, done = row+1, row == lastRow
	}
	return from, done, m.add(nil)
}

// decode returns the entries of a row, without those that are purged, and whether there were any. Of one that is damaged it
// returns none: it must not keep others from being merged.
func (m *merge) decode(value []byte) (entries []record.IDEntry, purged, damaged bool) {
	entries, err := record.AppendIDEntries(make([]record.IDEntry, 0, record.MaxIDEntries), value)
	if err != nil {
		return nil, false, true
	}
	found := len(entries)
	entries = slices.DeleteFunc(entries, func(e record.IDEntry) bool { return e.Number < m.gone })
	return entries, len(entries) < found, false
}

// change has the row hold these entries, or carries them on to the next one if they are few.
func (m *merge) change(row uint64, entries []record.IDEntry) error {
	m.changed++
	m.carried = nil
	if len(entries) < minRow && row != lastRow {
		m.carried = entries
		return m.Delete(m.bucket, record.NumberKey(row))
	}
	return m.write(row, entries)
}

// deleteRow deletes a row that is empty now, and whose keys are then the next one's.
func (b *batch) deleteRow(bucket []byte, row uint64) error {
	if row == lastRow {
		return b.Put(bucket, record.NumberKey(row), record.EncodeIDEntries(nil))
	}
	return b.Delete(bucket, record.NumberKey(row))
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
		if err := m.Put(m.bucket, record.NumberKey(entries[n-1].Key), record.EncodeIDEntries(entries[:n])); err != nil {
			return err
		}
		entries = entries[n:]
	}
	return m.Put(m.bucket, record.NumberKey(row), record.EncodeIDEntries(entries))
}

// sweepIDs looks through some of the rows for ids that are purged, if they may be many.
func (s *Store) sweepIDs(b *batch, left *int) error {
	gone, swept := metaNumber(b.tx, keyIDsGone), metaNumber(b.tx, keyIDsSwept)
	end := b.tx.Bucket(bucketEvents).Sequence() + 1
	bucket, from := s.ids.sweeping, s.ids.swept
	if bucket == nil {
		if gone-swept < max((end-swept)/4, minMerge) {
			return nil
		}
		bucket, from = bucketRecentIDs, 0 // first: what is moved from there later is looked at then
	}
	looked := cmp.Or(min(*left, mergeMost), 1)
	*left -= looked
	next, done, err := newMerge(b, bucket).sweep(from, &looked)
	*left += looked
	switch {
	case err != nil:
		return err
	case done && bytes.Equal(bucket, bucketRecentIDs):
		bucket, next = bucketEventIDs, 0
	case done:
		bucket, next = nil, 0
		if err := b.Put(bucketMeta, keyIDsSwept, record.NumberKey(gone)); err != nil {
			return err
		}
	}
	b.AfterCommit(func() { s.ids.sweeping, s.ids.swept = bucket, next })
	return nil
}
