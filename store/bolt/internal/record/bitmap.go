package record

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// A Bitmap is a set of numbers of a segment. A non-empty set is stored under the segment's key.
type Bitmap struct {
	First uint64 // bit 0
	bits  []byte
}

// Reset empties the set and makes first its lowest possible number.
func (m *Bitmap) Reset(first uint64) { m.First, m.bits = first, m.bits[:0] }

// Has reports whether the set contains the number.
func (m *Bitmap) Has(n uint64) bool {
	i := n - m.First
	return n >= m.First && i/8 < uint64(len(m.bits)) && m.bits[i/8]&(1<<(i%8)) != 0
}

// Set adds a number, which must be at least First.
func (m *Bitmap) Set(n uint64) {
	i := n - m.First
	for uint64(len(m.bits)) <= i/8 {
		m.bits = append(m.bits, 0)
	}
	m.bits[i/8] |= 1 << (i % 8)
}

// Clear removes a number, which must be in the set.
func (m *Bitmap) Clear(n uint64) {
	i := n - m.First
	m.bits[i/8] &^= 1 << (i % 8)
}

// IsEmpty reports whether the set is empty.
func (m *Bitmap) IsEmpty() bool {
	return !slices.ContainsFunc(m.bits, func(b byte) bool { return b != 0 })
}

// Each calls visit with the numbers in the set, in ascending order, until it returns false. It
// reports whether every call returned true.
func (m *Bitmap) Each(visit func(n uint64) bool) bool {
	for i, b := range m.bits {
		for ; b != 0; b &= b - 1 {
			if !visit(m.First + uint64(8*i+bits.TrailingZeros8(b))) {
				return false
			}
		}
	}
	return true
}

func (m *Bitmap) Encode() []byte {
	e := newEncoder(8 + len(m.bits))
	e = binary.BigEndian.AppendUint64(e, m.First)
	e.raw(m.bits)
	return e
}

// DecodeBitmap decodes a record. The Bitmap refers to it: Clone the Bitmap before changing it.
func DecodeBitmap(record []byte) (m Bitmap, err error) {
	d := newDecoder(record)
	first := d.raw(8)
	if d.failed {
		return m, ErrCorrupt
	}
	return Bitmap{binary.BigEndian.Uint64(first), d.rest}, nil
}

// Clone returns a Bitmap that shares no memory with m.
func (m Bitmap) Clone() Bitmap { return Bitmap{m.First, slices.Clone(m.bits)} }
