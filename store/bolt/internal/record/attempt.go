package record

import (
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

// EncodeAttempt returns the record of an attempt and its outcome.
func EncodeAttempt(a *webhooks.Attempt, outcome webhooks.Outcome) []byte {
	e := newEncoder(48 + len(a.Error) + len(a.Response))
	e.byte(byte(outcome))
	e.uint(uint64(a.Number))
	e.time(a.StartedAt)
	e.int(int64(a.Duration / time.Microsecond))
	e.uint(uint64(a.Status))
	e.string(string(a.Class))
	e.string(a.Error)
	e.string(a.Response)
	return e
}

// DecodeAttempt decodes an attempt and its outcome.
func DecodeAttempt(record []byte) (webhooks.Attempt, webhooks.Outcome, error) {
	var a webhooks.Attempt
	d := newDecoder(record)
	outcome := webhooks.Outcome(d.byte())
	a.Number = int(d.uint())
	a.StartedAt = d.time()
	a.Duration = time.Duration(d.int()) * time.Microsecond
	a.Status = int(d.uint())
	a.Class = webhooks.ErrorClass(d.string())
	a.Error = d.string()
	a.Response = d.string()
	return a, outcome, d.err()
}
