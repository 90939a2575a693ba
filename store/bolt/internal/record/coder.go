package record

import "time"

// A coder either writes or reads a record, so that one function lists the fields of a kind of
// record, in their order, for both directions.
type coder struct {
	to   *encoder // nil if the coder reads
	from *decoder
}

func (c coder) time(t *time.Time) {
	if c.to != nil {
		c.to.time(*t)
	} else {
		*t = c.from.time()
	}
}

func (c coder) bool(b *bool) {
	if c.to != nil {
		c.to.bool(*b)
	} else {
		*b = c.from.bool()
	}
}

// micros encodes a duration in microseconds.
func (c coder) micros(d *time.Duration) {
	if c.to != nil {
		c.to.int(int64(*d / time.Microsecond))
	} else {
		*d = time.Duration(c.from.int()) * time.Microsecond
	}
}

// array encodes bytes without their length, which both the writer and the reader know.
func (c coder) array(b []byte) {
	if c.to != nil {
		c.to.raw(b)
	} else {
		copy(b, c.from.raw(uint64(len(b))))
	}
}

// number encodes a number, which must not be negative.
func number[N ~int | ~int64 | ~uint8 | ~uint64](c coder, n *N) {
	if c.to != nil {
		c.to.uint(uint64(*n))
	} else {
		*n = N(c.from.uint())
	}
}

func (c coder) id(id *string) {
	if c.to != nil {
		c.to.id(*id)
	} else {
		*id = c.from.id()
	}
}

func text[S ~string](c coder, s *S) {
	if c.to != nil {
		c.to.string(string(*s))
	} else {
		*s = S(c.from.string())
	}
}

// bytes encodes bytes. The decoded value shares memory with the record.
func (c coder) bytes(b *[]byte) {
	if c.to != nil {
		c.to.string(string(*b))
	} else {
		*b = c.from.raw(c.from.uint())
	}
}

func texts[S ~string](c coder, list *[]S) {
	n := uint64(len(*list))
	number(c, &n)
	for i := range n {
		if c.to == nil {
			if c.from.failed {
				return
			}
			*list = append(*list, "")
		}
		text(c, &(*list)[i])
	}
}
