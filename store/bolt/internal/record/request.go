package record

import "time"

// A Request is one, known by its idempotency key, that created something.
type Request struct {
	ID          string // of what was created
	Fingerprint [32]byte
	At          time.Time
	KeyID       string // of the API key that made it; empty: none did
}

func (c coder) request(r *Request) {
	c.time(&r.At)
	c.array(r.Fingerprint[:])
	text(c, &r.ID)
	text(c, &r.KeyID)
}

// Encode returns the record.
func (r *Request) Encode() []byte {
	e := newEncoder(16 + len(r.Fingerprint) + len(r.ID))
	coder{to: &e}.request(r)
	return e
}

// DecodeRequest decodes a Request.
func DecodeRequest(record []byte) (r Request, err error) {
	d := newDecoder(record)
	coder{from: d}.request(&r)
	return r, d.err()
}
