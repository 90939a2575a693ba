package record

import (
	"errors"

	"github.com/storageapi/storageapi/internal/fields"
)

// Records of keys, webhooks, events and audit entries end with optional fields. Each field consists
// of a tag, a length and a value of that length. Package fields encodes the optional fields of keys
// and webhooks.
//
// A version that does not know an even tag ignores the field, and keeps it when rewriting the
// record. It rejects a record with an odd tag that it does not know ([ErrNewer]). Use an odd tag
// for a field that must not be ignored, for example "disabled".

// fields reads the rest of the record as fields. Unless know is nil, fields calls it with each
// field. It fails for an odd tag unless know returns true for it.
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

// unreadable converts an error of package fields to an error of this package.
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
