package bolt

import (
	"encoding/binary"
	"slices"
	"sort"

	"go.etcd.io/bbolt"
)

// marks are those bitmaps of a bucket that a batch has looked at, and changes in
// memory until it writes them.
type marks struct {
	bucket []byte
	cursor *bbolt.Cursor
	rows   []*mark // by key
}

type mark struct {
	last uint64 // of the segment
	bitmap
	changed bool
	log     []logged // first attempts at deliveries that were marked
}

// A logged is an attempt at the delivery of that number.
type logged struct {
	number uint64
	record []byte
}

// of returns the bitmap that marks the number, or nil.
func (m *marks) of(tx *bbolt.Tx, n uint64) *mark {
	i := sort.Search(len(m.rows), func(i int) bool { return m.rows[i].last >= n })
	if i == len(m.rows) || m.rows[i].first > n {
		if m.cursor == nil {
			m.cursor = tx.Bucket(m.bucket).Cursor()
		}
		key, record := m.cursor.Seek(seqKey(n))
		found, err := decodeBitmap(record)
		if err != nil || found.first > n || len(key) != 8 {
			return nil
		}
		found.bits = slices.Clone(found.bits)
		m.rows = slices.Insert(m.rows, i, &mark{last: binary.BigEndian.Uint64(key), bitmap: found})
	}
	if m.rows[i].has(n) {
		return m.rows[i]
	}
	return nil
}

// clear ends the mark of the number, and reports whether it had one.
func (m *marks) clear(b *batch, n uint64) bool {
	row := m.of(b.tx, n)
	if row == nil {
		return false
	}
	row.clear(n)
	row.changed = true
	b.MarkWritten()
	return true
}

// write writes what has changed.
func (m *marks) write(b *batch) error {
	for _, row := range m.rows {
		if !row.changed {
			continue
		}
		var record []byte
		if !row.isEmpty() {
			record = row.record()
		}
		if err := b.PutOrDelete(m.bucket, seqKey(row.last), record); err != nil {
			return err
		}
		if err := b.writeLog(row); err != nil {
			return err
		}
	}
	m.rows = nil
	return nil
}
