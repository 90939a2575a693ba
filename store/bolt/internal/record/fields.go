package record

import (
	"errors"

	"github.com/storageapi/storageapi/internal/fields"
)

// Records of keys, webhooks, events and audit entries end with optional fields, each encoded as a
// tag, a length and a value of that length. Those of keys and webhooks are packed by package
// fields.
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

// unreadable returns the error of this package for an error of package fields.
func unreadable(err error) error {
	if errors.Is(err, fields.ErrNewer) {
		return ErrNewer
	}
	return ErrCorrupt
}

func (e *encoder) field(tag uint64, value ...byte) {
	e.uint(tag)
	e.uint(uint64(len(value)))
	e.raw(value)
}
