package record

import "github.com/storageapi/storageapi/internal/clock"

// EncodeAlert returns the record of an alert's state, which is opaque to this package.
func EncodeAlert(state []byte) []byte {
	e := newEncoder(len(state))
	e.raw(state)
	return e
}

// DecodeAlert returns an alert's state. It treats an unreadable state as missing, so that the next
// update replaces it.
func DecodeAlert(record []byte) (state []byte) {
	if d := newDecoder(record); !d.failed {
		state = d.rest
	}
	return state
}

func EncodeMark(m clock.Mark) []byte {
	e := newEncoder(32)
	e.time(m.Wall)
	e.time(m.Steady)
	e.time(m.Sure)
	return e
}

func DecodeMark(record []byte) (m clock.Mark, err error) {
	d := newDecoder(record)
	m.Wall, m.Steady, m.Sure = d.time(), d.time(), d.time()
	return m, d.err()
}
