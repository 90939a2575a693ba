package record

import (
	"bytes"
	"encoding/binary"
	"sort"
)

// A Pack is a record that contains several records, each with an index. bbolt needs about as long
// for a pack of a hundred records as for a single record. The records come first, then a table of
// their end offsets in 4 bytes each, then their count.
type Pack struct {
	ends []byte
	data []byte
}

// DecodePack decodes a pack, which shares memory with the record. It does not check the contents:
// At returns nil for a damaged record.
func DecodePack(record []byte) (Pack, error) {
	d := newDecoder(record)
	rest := d.rest
	if d.failed || len(rest) < 4 {
		return Pack{}, ErrCorrupt
	}
	rest, tail := rest[:len(rest)-4], rest[len(rest)-4:]
	size := 4 * uint64(binary.BigEndian.Uint32(tail))
	if size > uint64(len(rest)) {
		return Pack{}, ErrCorrupt
	}
	at := uint64(len(rest)) - size
	return Pack{rest[at:], rest[:at]}, nil
}

// Len returns the number of records.
func (p Pack) Len() int { return len(p.ends) / 4 }

// At returns the record at index i, or nil.
func (p Pack) At(i int) []byte {
	if i < 0 || i >= p.Len() {
		return nil
	}
	start := uint32(0)
	if i > 0 {
		start = binary.BigEndian.Uint32(p.ends[4*i-4:])
	}
	end := binary.BigEndian.Uint32(p.ends[4*i:])
	if start > end || uint64(end) > uint64(len(p.data)) {
		return nil
	}
	return p.data[start:end:end]
}

// ByNumber returns the record that AppendNumbered added with the given number, or nil. The pack
// must be sorted by number.
func (p Pack) ByNumber(number uint64) []byte {
	key := NumberKey(number)
	i := sort.Search(p.Len(), func(i int) bool { return bytes.Compare(p.At(i), key) >= 0 })
	if record, found := bytes.CutPrefix(p.At(i), key); found {
		return record
	}
	return nil
}

// Without returns a copy of the pack that omits the records for which drop(number) is true, or nil
// if no record is left. All records must have been added with AppendNumbered.
func (p Pack) Without(drop func(number uint64) bool) []byte {
	var kept Packer
	for i := range p.Len() {
		if r := p.At(i); len(r) < 8 || !drop(binary.BigEndian.Uint64(r)) {
			kept.next().raw(r)
			kept.end()
		}
	}
	if kept.len() == 0 {
		return nil
	}
	return kept.Record()
}

// A Packer builds packs. To add a record, append its bytes to the result of next, and then call
// end. The memory is reused between batches.
type Packer struct {
	data  encoder
	ends  []byte
	made  []encoder // in use until Reset
	spare []encoder // free
}

// AppendNumbered adds a record preceded by its number.
func (p *Packer) AppendNumbered(number uint64, record []byte) {
	e := p.next()
	e.raw(NumberKey(number))
	e.raw(record)
	p.end()
}

// next returns the buffer of the record under construction.
func (p *Packer) next() *encoder {
	if len(p.data) == 0 {
		if last := len(p.spare) - 1; last >= 0 {
			p.data, p.spare = p.spare[last], p.spare[:last]
		}
		p.data = append(p.data[:0], Version)
	}
	return &p.data
}

func (p *Packer) end() { p.ends = binary.BigEndian.AppendUint32(p.ends, uint32(len(p.data)-1)) }

func (p *Packer) len() int { return len(p.ends) / 4 }

// Record returns the pack, which is valid until Reset, and begins another one.
func (p *Packer) Record() []byte {
	e := p.next()
	e.raw(p.ends)
	*e = binary.BigEndian.AppendUint32(*e, uint32(p.len()))
	p.made = append(p.made, *e)
	record := *e
	p.data, p.ends = nil, p.ends[:0]
	return record
}

// maxKept is the maximum memory, in bytes, that a Packer keeps for reuse.
const maxKept = 1 << 20

// Reset empties the Packer.
func (p *Packer) Reset() {
	if cap(p.data) > 0 {
		p.made = append(p.made, p.data)
	}
	kept := 0
	for _, e := range p.spare {
		kept += cap(e)
	}
	for _, e := range p.made {
		if kept += cap(e); kept <= maxKept {
			p.spare = append(p.spare, e)
		}
	}
	clear(p.made)
	p.made, p.data, p.ends = p.made[:0], nil, p.ends[:0]
}
