package record

import (
	"github.com/storageapi/storageapi/store/driver"
)

func (c coder) attempt(a *driver.Attempt, outcome *driver.Effect) {
	number(c, outcome)
	number(c, &a.Number)
	c.time(&a.StartedAt)
	c.micros(&a.Duration)
	number(c, &a.Status)
	text(c, &a.Class)
	text(c, &a.Error)
	text(c, &a.Response)
}

// EncodeAttempt returns the record of an attempt and its outcome.
func EncodeAttempt(a *driver.Attempt, outcome driver.Effect) []byte {
	e := newEncoder(48 + len(a.Error) + len(a.Response))
	coder{to: &e}.attempt(a, &outcome)
	return e
}

// DecodeAttempt decodes an attempt and its outcome.
func DecodeAttempt(record []byte) (a driver.Attempt, outcome driver.Effect, err error) {
	d := newDecoder(record)
	coder{from: d}.attempt(&a, &outcome)
	return a, outcome, d.err()
}
