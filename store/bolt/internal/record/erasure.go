package record

// An Erasure is the progress of an account's erasure, with counts of removed records. The store
// defines the meaning of stages and counts.
type Erasure struct {
	Stage  int
	Next   []byte // key to continue with
	Counts []uint64
}

func (r *Erasure) Encode() []byte {
	e := newEncoder(32 + len(r.Next))
	e.uint(uint64(r.Stage))
	e.string(string(r.Next))
	for _, n := range r.Counts {
		e.uint(n)
	}
	return e
}

// DecodeErasure decodes a record. For an unreadable record it returns the zero Erasure, since an
// erasure may safely start again.
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
