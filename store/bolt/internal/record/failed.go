package record

// MaxFailed is the number of consecutive numbers that one record of failed deliveries covers.
const MaxFailed = 32 << 10

// EncodeFailed encodes a set of failed deliveries, as deltas if there are few, or else as bits.
// The set's First must be a multiple of MaxFailed.
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

// DecodeFailed decodes a record. A nil record is an empty set.
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
