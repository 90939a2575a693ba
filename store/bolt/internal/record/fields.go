package record

import (
	"encoding/binary"
	"slices"
)

// A record of a key, a webhook or an event ends with optional fields of later versions, each
// encoded as a tag, a length and a value of that length.
//
// A version that does not know an even tag ignores the field, and keeps it when it rewrites the
// record. It rejects a record with an unknown odd tag ([ErrNewer]): such a field, for example
// "disabled", must not be ignored.

// fields reads the rest of the record as fields. It calls know, unless nil, with each of them, and
// fails for an odd tag for which know does not return true.
func (d *decoder) fields(know func(tag uint64, value []byte) bool) {
	for len(d.rest) > 0 && !d.failed {
		tag := d.uint()
		value := d.raw(d.uint())
		known := know != nil && !d.failed && know(tag, value)
		if !d.failed && !known && (tag == 0 || tag%2 == 1) {
			d.failed, d.newer = true, tag > 0
		}
	}
}

// cutField returns the first of the fields, and the rest.
func cutField(fields string) (tag uint64, value, rest string, ok bool) {
	tag, fields, first := cutUvarint(fields)
	length, fields, second := cutUvarint(fields)
	if !first || !second || length > uint64(len(fields)) {
		return 0, "", "", false
	}
	return tag, fields[:length], fields[length:], true
}

func cutUvarint(s string) (n uint64, rest string, ok bool) {
	n, size := binary.Uvarint([]byte(s[:min(len(s), binary.MaxVarintLen64)]))
	return n, s[max(size, 0):], size > 0
}

func (e *encoder) field(tag uint64, value ...byte) {
	e.uint(tag)
	e.uint(uint64(len(value)))
	e.raw(value)
}

// unknown returns the encoded fields without the fields of known tags.
func unknown(fields []byte, known ...uint64) (rest []byte) {
	d := decoder{rest: fields}
	for len(d.rest) > 0 {
		before := d.rest
		tag := d.uint()
		d.raw(d.uint())
		if d.failed {
			return append(rest, before...)
		}
		if !slices.Contains(known, tag) {
			rest = append(rest, before[:len(before)-len(d.rest)]...)
		}
	}
	return rest
}
