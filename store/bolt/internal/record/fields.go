package record

import (
	"encoding/binary"
	"slices"
)

// After what every record of a key, a webhook or an event has there is room for fields
// of later versions, each a tag, a length and that many bytes.
//
// A version that does not know a field of an even tag overlooks it, and keeps it when it
// writes the record again. It does not read a record with one of an odd tag ([ErrNewer]), since
// what the field says, such as that a key is disabled, must not be overlooked.

// fields reads what is left as fields. Those that know, unless it is nil, does not report
// to be known must have even tags.
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

// cutField returns the first field of some, and the rest.
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

// field appends a field.
func (e *encoder) field(tag uint64, value ...byte) {
	e.uint(tag)
	e.uint(uint64(len(value)))
	e.raw(value)
}

// unknown returns the fields of a record without those of the known tags.
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
