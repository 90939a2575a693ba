package bolt

import "encoding/binary"

// A pack is a record of several, each found by its place: bbolt takes about as long
// for a record of a hundred as for each one of them.
type pack struct {
	ends []byte // 4 bytes for each: where it ends in data
	data []byte
}

// decodePack reads a pack. What is damaged within it shows when it is looked at.
func decodePack(record []byte) (pack, error) {
	d := newDecoder(record)
	var count uint64
	if b := d.raw(4); b != nil {
		count = uint64(binary.BigEndian.Uint32(b))
	}
	ends := d.raw(4 * count)
	if d.failed {
		return pack{}, errRecord
	}
	return pack{ends, d.rest}, nil
}

func (p pack) len() int { return len(p.ends) / 4 }

// at returns the record at that place; nil if there is none.
func (p pack) at(i int) []byte {
	if i < 0 || i >= p.len() {
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

// A packer builds a pack: what is appended to data until end is called is a record of it.
type packer struct {
	data encoder
	ends []byte
}

func (p *packer) end() { p.ends = binary.BigEndian.AppendUint32(p.ends, uint32(len(p.data))) }

func (p *packer) len() int { return len(p.ends) / 4 }

func (p *packer) record() []byte {
	e := newEncoder(4 + len(p.ends) + len(p.data))
	e = binary.BigEndian.AppendUint32(e, uint32(p.len()))
	e.raw(p.ends)
	e.raw(p.data)
	return e
}

// maxKept bounds the memory that a packer keeps to be used again.
const maxKept = 1 << 20

// reset empties it; records made before stay as they are.
func (p *packer) reset() {
	if cap(p.data) > maxKept {
		p.data = nil
	}
	p.data, p.ends = p.data[:0], p.ends[:0]
}
