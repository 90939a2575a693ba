package fields

import (
	"encoding/binary"
	"errors"
)

// ErrCorrupt is returned for packed fields that cannot be read.
var ErrCorrupt = errors.New("packed fields are damaged")

// ErrNewer is returned for packed fields with an odd tag that this version does not know.
var ErrNewer = errors.New("packed fields were written by a newer version of the library")

// Pack appends the packed fields of a record that are not zero, each as its tag, the length of its
// value, and the value.
func Pack(b []byte, r Record) []byte {
	w := Packer(b)
	r.Fields(&w)
	return w.out
}

// Packer returns a walk that packs like [Pack]. With it, the record can stay on the stack.
func Packer(b []byte) Walk { return Walk{mode: packing, out: b} }

// Bytes returns the packed fields of a Packer.
func (w *Walk) Bytes() []byte { return w.out }

// Unpacker returns a walk that unpacks fields into a zero record, whose texts are parts of packed:
//
//	w := fields.Unpacker(packed)
//	for w.More() {
//		key.Fields(&w)
//	}
//	err := w.Err()
func Unpacker(packed string) Walk {
	w := Walk{packed: packed, found: true}
	w.next()
	return w
}

// Unknown appends the packed fields that the record does not list, such as fields of a newer
// version, and damaged fields. Use it to keep such fields when the packed fields are replaced. It
// overwrites r.
func Unknown(b []byte, packed string, r Record) []byte {
	w := Unpacker(packed)
	w.keep, w.out = true, b
	for w.More() {
		r.Fields(&w)
	}
	return append(w.out, w.packed[w.start:]...) // empty unless damaged
}

// More reports whether another walk is needed. A walk finds all fields that are stored in the order
// of the record's list. If a whole walk does not find a field, the list does not have it.
func (w *Walk) More() bool { return w.tag != 0 && w.more() }

func (w *Walk) more() bool {
	for w.tag != 0 && !w.found && w.err == nil {
		switch {
		case w.keep:
			w.out = append(w.out, w.packed[w.start:w.end]...)
		case w.tag%2 == 1:
			w.err = ErrNewer
			return false
		}
		w.next()
		w.found = true
	}
	w.found = false
	return w.tag != 0 && w.err == nil
}

// Err returns the error that ended unpacking, or nil.
func (w *Walk) Err() error { return w.err }

// next moves on to the field after the current one.
func (w *Walk) next() {
	at := w.end
	w.start, w.tag = at, 0
	if rest := w.packed[at:]; len(rest) >= 2 && rest[0] < 0x80 && int(rest[1]) <= min(0x7f, len(rest)-2) {
		w.tag, w.value, w.end = uint64(rest[0]), at+2, at+2+int(rest[1])
	} else if rest != "" {
		w.nextLong(rest)
	}
	if w.tag == 0 && at < len(w.packed) {
		w.err = ErrCorrupt
	}
}

// nextLong does the work of next for a field whose tag or length takes more than a byte, and for a
// damaged field.
func (w *Walk) nextLong(rest string) {
	tag, rest, first := cutUvarint(rest)
	length, rest, second := cutUvarint(rest)
	if first && second && length <= uint64(len(rest)) {
		w.tag, w.value = tag, len(w.packed)-len(rest)
		w.end = w.value + int(length)
	}
}

// take returns the value of the next field, and moves on to the field after it.
func (w *Walk) take() string {
	value := w.packed[w.value:w.end]
	w.found = true
	w.next()
	return value
}

// number decodes the value of a number.
func (w *Walk) number(value string) uint64 {
	n, rest, ok := cutUvarint(value)
	if !ok || rest != "" {
		w.err = ErrCorrupt
	}
	return n
}

func cutUvarint(s string) (n uint64, rest string, ok bool) {
	n, size := binary.Uvarint([]byte(s[:min(len(s), binary.MaxVarintLen64)]))
	return n, s[max(size, 0):], size > 0
}

func packTexts[S ~string](list []S) (value []byte) {
	for _, text := range list {
		value = binary.AppendUvarint(value, uint64(len(text)))
		value = append(value, text...)
	}
	return value
}

func unpackTexts[S ~string](w *Walk, value string) (list []S) {
	for value != "" {
		length, rest, ok := cutUvarint(value)
		if !ok || length > uint64(len(rest)) {
			w.err = ErrCorrupt
			return nil
		}
		list = append(list, S(rest[:length]))
		value = rest[length:]
	}
	return list
}

// A part is the end of the value of a listed field.
type part struct {
	name string
	end  int
}

// put appends a value while packing or listing.
func put[V string | []byte](w *Walk, name string, tag uint64, value V) {
	if w.mode == packing {
		if len(value) == 0 {
			return
		}
		w.out = binary.AppendUvarint(w.out, tag)
	}
	w.out = binary.AppendUvarint(w.out, uint64(len(value)))
	w.out = append(w.out, value...)
	if w.mode == listing {
		w.parts = append(w.parts, part{name, len(w.out)})
	}
}
