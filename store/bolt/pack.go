package bolt

import "encoding/binary"

// A pack is a record of several, each found by its place: bbolt takes about as long
// for a record of a hundred as for each one of them. They stand one after the other;
// then, in 4 bytes each, where they end, and how many they are.
type pack struct {
	ends []byte
	data []byte
}

// decodePack reads a pack. What is damaged within it shows when it is looked at.
func decodePack(record []byte) (pack, error) {
	d := newDecoder(record)
	rest := d.rest
	if d.failed || len(rest) < 4 {
		return pack{}, errRecord
	}
	rest, tail := rest[:len(rest)-4], rest[len(rest)-4:]
	size := 4 * uint64(binary.BigEndian.Uint32(tail))
	if size > uint64(len(rest)) {
		return pack{}, errRecord
	}
	at := uint64(len(rest)) - size
	return pack{rest[at:], rest[:at]}, nil
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

// A packer builds packs: what is added to its next record until end is called is one of
// the pack's. Its memory serves one batch after the other.
type packer struct {
	data  encoder
	ends  []byte
	made  []encoder // records in use until reset
	spare []encoder // that are not
}

// next returns the record that is being built.
func (p *packer) next() *encoder {
	if len(p.data) == 0 {
		if last := len(p.spare) - 1; last >= 0 {
			p.data, p.spare = p.spare[last], p.spare[:last]
		}
		p.data = append(p.data[:0], recordVersion)
	}
	return &p.data
}

func (p *packer) end() { p.ends = binary.BigEndian.AppendUint32(p.ends, uint32(len(p.data)-1)) }

func (p *packer) len() int { return len(p.ends) / 4 }

// record returns the pack, which is good until reset, and begins another.
func (p *packer) record() []byte {
	e := p.next()
	e.raw(p.ends)
	*e = binary.BigEndian.AppendUint32(*e, uint32(p.len()))
	p.made = append(p.made, *e)
	record := *e
	p.data, p.ends = nil, p.ends[:0]
	return record
}

// maxKept bounds the memory, in bytes, that a packer keeps to be used again.
const maxKept = 1 << 20

// reset empties it.
func (p *packer) reset() {
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
