package bolt

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"go.etcd.io/bbolt"
)

// A bitmap marks some of the numbers of a segment. Its record stands under the
// segment's key as long as there are any.
type bitmap struct {
	first uint64
	bits  []byte
}

func (m *bitmap) reset(first uint64) { m.first, m.bits = first, m.bits[:0] }

func (m *bitmap) has(n uint64) bool {
	i := n - m.first
	return n >= m.first && i/8 < uint64(len(m.bits)) && m.bits[i/8]&(1<<(i%8)) != 0
}

// set marks a number that is not before the first.
func (m *bitmap) set(n uint64) {
	i := n - m.first
	for uint64(len(m.bits)) <= i/8 {
		m.bits = append(m.bits, 0)
	}
	m.bits[i/8] |= 1 << (i % 8)
}

// clear ends the mark of a number that has one.
func (m *bitmap) clear(n uint64) {
	i := n - m.first
	m.bits[i/8] &^= 1 << (i % 8)
}

func (m *bitmap) isEmpty() bool {
	return !slices.ContainsFunc(m.bits, func(b byte) bool { return b != 0 })
}

// each calls visit with the numbers that are marked, ascending, until it returns false,
// and reports whether it never did.
func (m *bitmap) each(visit func(n uint64) bool) bool {
	for i, b := range m.bits {
		for ; b != 0; b &= b - 1 {
			if !visit(m.first + uint64(8*i+bits.TrailingZeros8(b))) {
				return false
			}
		}
	}
	return true
}

func (m *bitmap) record() []byte {
	e := newEncoder(8 + len(m.bits))
	e = binary.BigEndian.AppendUint64(e, m.first)
	e.raw(m.bits)
	return e
}

// decodeBitmap reads a record, which the bitmap goes on to refer to.
func decodeBitmap(record []byte) (m bitmap, err error) {
	d := newDecoder(record)
	first := d.raw(8)
	if d.failed {
		return m, errRecord
	}
	return bitmap{binary.BigEndian.Uint64(first), d.rest}, nil
}

// isMarked reports whether one of the bucket's bitmaps marks the number.
func isMarked(tx *bbolt.Tx, bucket []byte, n uint64) bool {
	_, record := tx.Bucket(bucket).Cursor().Seek(seqKey(n))
	m, err := decodeBitmap(record)
	return err == nil && m.has(n)
}
