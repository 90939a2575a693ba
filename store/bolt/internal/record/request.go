package record

import "time"

// A Request records a creation that had an idempotency key.
type Request struct {
	ID          string // of the created key or webhook
	Fingerprint [32]byte
	At          time.Time
	KeyID       string // ID of the API key that made the request, or empty
}

func (c coder) request(r *Request) {
	c.time(&r.At)
	c.array(r.Fingerprint[:])
	text(c, &r.ID)
	text(c, &r.KeyID)
}

func (r *Request) Encode() []byte {
	e := newEncoder(16 + len(r.Fingerprint) + len(r.ID))
	coder{to: &e}.request(r)
	return e
}

func DecodeRequest(record []byte) (r Request, err error) {
	d := newDecoder(record)
	coder{from: d}.request(&r)
	return r, d.err()
}
