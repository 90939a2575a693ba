package record

// An Erasure is how far the erasure of an account has come, and what it has removed. What the
// numbers mean is the store's business.
type Erasure struct {
	Stage  int
	Next   []byte // key to go on with
	Counts []uint64
}

// Encode returns the record.
func (r *Erasure) Encode() []byte {
	e := newEncoder(32 + len(r.Next))
	e.uint(uint64(r.Stage))
	e.string(string(r.Next))
	for _, n := range r.Counts {
		e.uint(n)
	}
	return e
}

// DecodeErasure decodes a record. One that cannot be read is one that has not begun: an erasure
// may do again what it did.
func DecodeErasure(record []byte) (r Erasure) {
	d := newDecoder(record)
	r.Stage, r.Next = int(d.uint()), []byte(d.string())
	for len(d.rest) > 0 && !d.failed {
		r.Counts = append(r.Counts, d.uint())
	}
	if d.failed {
		return Erasure{}
	}
	return r
}
