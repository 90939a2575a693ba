package record

import "time"

// A Request is one, known by its idempotency key, that created something.
type Request struct {
	ID          string // of what was created
	Fingerprint [32]byte
	At          time.Time
	KeyID       string // of the API key that made it; empty: none did
}

// Encode returns the record.
func (r *Request) Encode() []byte {
	e := newEncoder(16 + len(r.Fingerprint) + len(r.ID))
	e.time(r.At)
	e.raw(r.Fingerprint[:])
	e.string(r.ID)
	e.string(r.KeyID)
	return e
}

// DecodeRequest decodes a Request.
func DecodeRequest(record []byte) (r Request, err error) {
	d := newDecoder(record)
	r.At = d.time()
	copy(r.Fingerprint[:], d.raw(uint64(len(r.Fingerprint))))
	r.ID = d.string()
	r.KeyID = d.string()
	return r, d.err()
}
