package record

// After what every record of a key, a webhook or an event has there is room for fields
// of later versions, each a tag, a length and that many bytes. There are none yet.
//
// A version that does not know a field of an even tag overlooks it, and keeps it when it
// writes the record again. A record with one of an odd tag it takes for damaged, since
// what the field says, such as that a key is disabled, must not be overlooked.

// fields reads what is left as fields that are not known.
func (d *decoder) fields() {
	for len(d.rest) > 0 && !d.failed {
		tag := d.uint()
		d.raw(d.uint())
		d.failed = d.failed || tag == 0 || tag%2 == 1
	}
}
