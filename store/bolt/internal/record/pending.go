package record

import "time"

// MaxAttempts is more than the number of attempts of any schedule. A record with more is corrupt.
const MaxAttempts = 1 << 20

// A Pending holds the due time of a pending delivery and the number of its attempts. A delivery
// that has been pending since its publication, without an attempt, has no such record.
type Pending struct {
	Due       time.Time // on the steady clock, which is never set
	Attempts  int       // made so far
	Before    int       // attempts made before the delivery was last made pending
	Recovered bool
	First     bool // due before all other deliveries of its webhook
}

const (
	pendingRecovered = 1 << iota
	pendingFirst
)

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
