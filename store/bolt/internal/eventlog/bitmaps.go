package eventlog

import (
	"encoding/binary"
	"slices"
	"sort"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
)

// bitmaps holds the bitmaps that the batch has read from a bucket. The batch changes them in memory
// and writes each bitmap once.
type bitmaps struct {
	bucket []byte
	cursor *bbolt.Cursor
	rows   []*bitmap // by key
}

type bitmap struct {
	last uint64 // last number of the segment, which is the row's key
	record.Bitmap
	changed  bool
	attempts []firstAttempt // first attempts at deliveries of the segment
}

// containing returns the bitmap that contains the number, or nil.
func (m *bitmaps) containing(tx *bbolt.Tx, n uint64) *bitmap {
	i := sort.Search(len(m.rows), func(i int) bool { return m.rows[i].last >= n })
	if i == len(m.rows) || m.rows[i].First > n {
		if m.cursor == nil {
			m.cursor = tx.Bucket(m.bucket).Cursor()
		}
		key, value := m.cursor.Seek(record.NumberKey(n))
		found, err := record.DecodeBitmap(value)
		if err != nil || found.First > n || len(key) != 8 {
			return nil
		}
		m.rows = slices.Insert(m.rows, i, &bitmap{last: binary.BigEndian.Uint64(key), Bitmap: found.Clone()})
	}
	if m.rows[i].Has(n) {
		return m.rows[i]
	}
	return nil
}

// remove removes the number from its bitmap, and reports whether a bitmap contained it.
func (m *bitmaps) remove(s *Step, n uint64) bool {
	row := m.containing(s.tx, n)
	if row == nil {
		return false
	}
	row.Clear(n)
	row.changed = true
	s.MarkWritten()
	return true
}

// write writes the changed bitmaps, and their first attempts.
func (m *bitmaps) write(s *Step) error {
	for _, row := range m.rows {
		if !row.changed {
			continue
		}
		var value []byte
		if !row.IsEmpty() {
			value = row.Encode()
		}
		if err := s.PutOrDelete(m.bucket, record.NumberKey(row.last), value); err != nil {
			return err
		}
		if err := s.writeFirstAttempts(row); err != nil {
			return err
		}
	}
	m.rows = nil
	return nil
}

// inBitmap reports whether one of the bucket's bitmaps contains the number.
func inBitmap(tx *bbolt.Tx, bucket []byte, n uint64) bool {
	_, value := tx.Bucket(bucket).Cursor().Seek(record.NumberKey(n))
	m, err := record.DecodeBitmap(value)
	return err == nil && m.Has(n)
}
