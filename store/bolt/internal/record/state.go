package record

import "github.com/storageapi/storageapi/internal/clock"

// EncodeAlert returns the record of an alert's state, which is opaque.
func EncodeAlert(state []byte) []byte {
	e := newEncoder(len(state))
	e.raw(state)
	return e
}

// DecodeAlert returns the state. One that cannot be decoded is as if there were none,
// so that the next step mends it.
func DecodeAlert(record []byte) (state []byte) {
	if d := newDecoder(record); !d.failed {
		state = d.rest
	}
	return state
}

// EncodeMark returns the record of a clock's mark.
func EncodeMark(m clock.Mark) []byte {
	e := newEncoder(32)
	e.time(m.Wall)
	e.time(m.Steady)
	e.time(m.Sure)
	return e
}

// DecodeMark decodes a clock's mark.
func DecodeMark(record []byte) (m clock.Mark, err error) {
	d := newDecoder(record)
	m.Wall, m.Steady, m.Sure = d.time(), d.time(), d.time()
	return m, d.err()
}
