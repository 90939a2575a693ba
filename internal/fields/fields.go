// Package fields derives many operations on a record from a single list of its fields: storing,
// export, import, copying, comparing, hashing and auditing.
//
// A type lists its fields once, as in package listed:
//
//	func (k *Key) Fields(w *fields.Walk) {
//		fields.Text(w, "hint", 2, 0, &k.Hint)
//		fields.Time(w, "expiresAt", fields.Placed, fields.Setting, &k.ExpiresAt)
//	}
//
// Each function of this package walks that list in its own mode. Unpacking calls Fields directly,
// not through [Record], so that the record stays on the stack.
package fields

import (
	"encoding/binary"
	"slices"
	"time"
)

// A Record lists its fields, in the same order each time.
type Record interface{ Fields(w *Walk) }

// Placed is the tag of a field that each store keeps separately, for example in a column, because
// the store searches, seals or updates it. All other fields are packed: stores keep them together
// as one byte string, so that a new field needs no change in a store. A tag is never used again. An
// odd tag means that a version that does not know the field must refuse the record.
const Placed = 0

// Uses are the roles of a field in changes of a record.
type Uses uint8

// The uses of a field. Without any, the field is only stored, copied and exported.
const (
	Setting Uses = 1 << iota // changed by requests: audited by name, shown to its account, and part of the ETag
	Created                  // a parameter of the creation: part of the fingerprint of a repeated request
	Value                    // a secret that rotations change
	Tagged                   // part of the ETag, although it is not a setting
	Guarded                  // follows from other changes; conditions depend on it
	Sent                     // determines the requests to a receiver
)

// Sets of uses.
const (
	Versioned   = Setting | Tagged          // the fields that an ETag covers; no secrets, because these could be guessed from the ETag
	Conditioned = Setting | Value | Guarded // a change of one of these fields requires a new evaluation of conditions
)

type mode uint8

const (
	unpacking mode = iota
	packing
	listing // the fields with some uses, for comparisons and hashes
	writing // JSON
	copying
	checking
)

// A Walk visits the fields of a record in one mode.
type Walk struct {
	mode mode
	uses Uses // listing, writing: only fields with one of these uses

	// Unpacking: the tag of the next field, or 0 after the last; the offsets of the field, its
	// value and its end; and whether this walk has found a field.
	found             bool
	keep              bool // collect unknown fields
	tag               uint64
	packed            string
	start, value, end int
	err               error

	out []byte // packed, listed or written fields
	*aside
}

// aside is the state of modes other than packing and unpacking.
type aside struct {
	parts []part // listing
	check func(name, text string) error
}

// Packed reports whether the walk skips placed fields.
func (w *Walk) Packed() bool { return w.mode <= packing }

// Copies reports whether the walk copies the data that the record shares with others.
func (w *Walk) Copies() bool { return w.mode == copying }

// skips reports whether the walk does not visit the field.
func (w *Walk) skips(tag uint64, uses Uses) bool {
	return w.mode == packing && tag == Placed || w.uses != 0 && uses&w.uses == 0
}

// Text visits a string.
func Text[S ~string](w *Walk, name string, tag uint64, uses Uses, p *S) {
	if w.mode != unpacking || w.tag == tag {
		visitText(w, name, tag, uses, p)
	}
}

func visitText[S ~string](w *Walk, name string, tag uint64, uses Uses, p *S) {
	if w.skips(tag, uses) {
		return
	}
	switch w.mode {
	case unpacking:
		*p = S(w.take())
	case packing, listing:
		put(w, name, tag, string(*p))
	case writing:
		w.write(name, string(*p), *p == "")
	case checking:
		w.verify(name, string(*p))
	}
}

// Texts visits a list of strings.
func Texts[S ~string](w *Walk, name string, tag uint64, uses Uses, p *[]S) {
	if w.mode != unpacking || w.tag == tag {
		visitTexts(w, name, tag, uses, p)
	}
}

func visitTexts[S ~string](w *Walk, name string, tag uint64, uses Uses, p *[]S) {
	if w.skips(tag, uses) {
		return
	}
	switch w.mode {
	case unpacking:
		*p = unpackTexts[S](w, w.take())
	case packing, listing:
		put(w, name, tag, packTexts(*p))
	case writing:
		w.write(name, slices.Clone(*p), len(*p) == 0)
	case copying:
		*p = slices.Clone(*p)
	case checking:
		for _, text := range *p {
			w.verify(name, string(text))
		}
	}
}

// Time visits a time, which is kept in UTC to the millisecond.
func Time(w *Walk, name string, tag uint64, uses Uses, p *time.Time) {
	if w.mode != unpacking || w.tag == tag {
		visitTime(w, name, tag, uses, p)
	}
}

func visitTime(w *Walk, name string, tag uint64, uses Uses, p *time.Time) {
	if w.skips(tag, uses) {
		return
	}
	switch w.mode {
	case unpacking:
		if n := w.number(w.take()); w.err == nil {
			*p = time.UnixMilli(int64(n)).UTC()
		}
	case packing, listing:
		var scratch [binary.MaxVarintLen64]byte
		value := scratch[:0]
		if !p.IsZero() {
			value = binary.AppendUvarint(value, uint64(p.UnixMilli()))
		}
		put(w, name, tag, value)
	case writing:
		w.write(name, p.UnixMilli(), p.IsZero())
	case copying:
		if !p.IsZero() || p.Location() != time.UTC { // most times of a key are zero
			*p = p.UTC().Truncate(time.Millisecond)
		}
	}
}

// Number visits a number.
func Number[N ~uint64](w *Walk, name string, tag uint64, uses Uses, p *N) {
	if w.mode != unpacking || w.tag == tag {
		visitNumber(w, name, tag, uses, p)
	}
}

func visitNumber[N ~uint64](w *Walk, name string, tag uint64, uses Uses, p *N) {
	if w.skips(tag, uses) {
		return
	}
	switch w.mode {
	case unpacking:
		*p = N(w.number(w.take()))
	case packing, listing:
		var scratch [binary.MaxVarintLen64]byte
		value := scratch[:0]
		if *p != 0 {
			value = binary.AppendUvarint(value, uint64(*p))
		}
		put(w, name, tag, value)
	case writing:
		w.write(name, uint64(*p), *p == 0)
	}
}

// Bool visits a boolean.
func Bool(w *Walk, name string, tag uint64, uses Uses, p *bool) {
	if w.mode != unpacking || w.tag == tag {
		visitBool(w, name, tag, uses, p)
	}
}

func visitBool(w *Walk, name string, tag uint64, uses Uses, p *bool) {
	if w.skips(tag, uses) {
		return
	}
	switch w.mode {
	case unpacking:
		*p = w.number(w.take()) != 0
	case packing, listing:
		value := ""
		if *p {
			value = "\x01"
		}
		put(w, name, tag, value)
	case writing:
		w.write(name, *p, !*p)
	}
}

// Formatted visits a value as text. format must return "" for the zero value. parse never gets "",
// and may be nil for a placed field.
func Formatted[T any](w *Walk, name string, tag uint64, uses Uses, p *T, format func(T) string, parse func(string) (T, error)) {
	if w.mode != unpacking || w.tag == tag {
		visitFormatted(w, name, tag, uses, p, format, parse)
	}
}

func visitFormatted[T any](w *Walk, name string, tag uint64, uses Uses, p *T, format func(T) string, parse func(string) (T, error)) {
	if w.skips(tag, uses) {
		return
	}
	switch w.mode {
	case unpacking:
		if text := w.take(); text != "" {
			*p = parsed(w, text, parse)
		}
	case copying:
	default:
		text := format(*p)
		visitText(w, name, tag, uses, &text)
	}
}

// FormattedTexts visits a value as a list of texts. format must return no texts for the zero value.
func FormattedTexts[T any](w *Walk, name string, tag uint64, uses Uses, p *T, format func(T) []string, parse func([]string) (T, error)) {
	if w.mode != unpacking || w.tag == tag {
		visitFormattedTexts(w, name, tag, uses, p, format, parse)
	}
}

func visitFormattedTexts[T any](w *Walk, name string, tag uint64, uses Uses, p *T, format func(T) []string, parse func([]string) (T, error)) {
	if w.skips(tag, uses) {
		return
	}
	switch w.mode {
	case unpacking:
		*p = parsed(w, unpackTexts[string](w, w.take()), parse)
	case copying:
	default:
		list := format(*p)
		visitTexts(w, name, tag, uses, &list)
	}
}

func parsed[S, T any](w *Walk, packed S, parse func(S) (T, error)) T {
	value, err := parse(packed)
	if err != nil && w.err == nil {
		w.err = ErrCorrupt
	}
	return value
}
