package record

import "time"

// MaxAttempts is more attempts than any schedule has. A record with more is corrupt.
const MaxAttempts = 1 << 20

// A Pending says when a pending delivery is due, and what was before. A delivery that is
// pending as it was published has none.
type Pending struct {
	Due       time.Time // by the clock that is not set
	Attempts  int       // made so far
	Before    int       // of them, before it was last made pending
	Recovered bool
	First     bool // it comes before all else of its webhook
}

// The flags of a record.
const (
	pendingRecovered = 1 << iota
	pendingFirst
)

// Encode returns the record.
func (p *Pending) Encode() []byte {
	e := newEncoder(16)
	e.time(p.Due)
	e.uint(uint64(p.Attempts))
	e.uint(uint64(p.Before))
	var flags byte
	if p.Recovered {
		flags |= pendingRecovered
	}
	if p.First {
		flags |= pendingFirst
	}
	e.byte(flags)
	return e
}

// DecodePending decodes a Pending.
func DecodePending(record []byte) (p Pending, err error) {
	d := newDecoder(record)
	p.Due = d.time()
	attempts, before := d.uint(), d.uint()
	flags := d.byte()
	p.Recovered, p.First = flags&pendingRecovered != 0, flags&pendingFirst != 0
	if d.failed || attempts > MaxAttempts || before > attempts {
		return Pending{}, ErrCorrupt
	}
	p.Attempts, p.Before = int(attempts), int(before)
	return p, nil
}
