package record

// MaxFailed is how many numbers the records of failed deliveries are of.
const MaxFailed = 32 << 10

// EncodeFailed returns the record of the deliveries in the set, whose First is the first of
// MaxFailed numbers: as their distances if they are few, or else as bits.
func EncodeFailed(m *Bitmap) []byte {
	few := append(newEncoder(16), 0)
	last := m.First
	m.Each(func(n uint64) bool {
		few.uint(n - last)
		last = n
		return len(few) <= len(m.bits)+1
	})
	if len(few) <= len(m.bits)+1 {
		return few
	}
	many := append(newEncoder(1+len(m.bits)), 1)
	many.raw(m.bits)
	return many
}

// DecodeFailed decodes a record. Of no record there are none in the set.
func DecodeFailed(first uint64, record []byte) (m Bitmap, err error) {
	m.First = first
	if record == nil {
		return m, nil
	}
	d := newDecoder(record)
	switch many := d.byte(); {
	case many > 1 || many == 1 && len(d.rest) > MaxFailed/8:
		return m, ErrCorrupt
	case many == 1:
		m.bits = append(m.bits, d.rest...)
		return m, d.err()
	}
	for n := first; len(d.rest) > 0 && !d.failed; {
		if n += d.uint(); n-first >= MaxFailed {
			return Bitmap{First: first}, ErrCorrupt
		}
		m.Set(n)
	}
	return m, d.err()
}
