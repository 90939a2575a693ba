package fields

import (
	"encoding/json"
	"errors"
	"fmt"
)

type members = map[string]json.RawMessage

// An InvalidError names a field of a JSON object that has a wrong value, without the value.
type InvalidError struct{ Field string }

func (e *InvalidError) Error() string { return fmt.Sprintf("field %s: invalid value", e.Field) }

// ErrUnknown is returned for a JSON object with a field that the record does not list.
var ErrUnknown = errors.New("invalid JSON or unknown field")

// JSON returns the fields of a record that have one of the uses, or all fields if uses is 0, as a
// JSON object without zero values. Times are Unix milliseconds.
func JSON(r Record, uses Uses) ([]byte, error) {
	w := Walk{mode: writing, uses: uses, out: []byte{'{'}}
	r.Fields(&w)
	return append(w.out, '}'), w.err
}

// FromJSON sets the fields of a zero record from an object made by [JSON]. The object must not have
// other fields.
func FromJSON(object []byte, r Record) error {
	w := Walk{mode: reading, aside: new(aside)}
	if err := json.Unmarshal(object, &w.members); err != nil {
		return ErrUnknown
	}
	r.Fields(&w)
	if w.err == nil && len(w.members) > 0 {
		return ErrUnknown
	}
	return w.err
}

func (w *Walk) write(name string, value any, zero bool) {
	if zero || w.err != nil {
		return
	}
	if len(w.out) > 1 {
		w.out = append(w.out, ',')
	}
	w.out = append(w.out, '"')
	w.out = append(append(w.out, name...), '"', ':')
	encoded, err := json.Marshal(value)
	w.out, w.err = append(w.out, encoded...), err
}

// read decodes a member, unless it is absent, and reports whether it did.
func (w *Walk) read(name string, target any) bool {
	raw, given := w.members[name]
	if !given {
		return false
	}
	delete(w.members, name)
	err := json.Unmarshal(raw, target)
	w.fail(name, err)
	return err == nil
}

func (w *Walk) fail(name string, err error) {
	switch {
	case err == nil || w.err != nil:
	case w.mode == unpacking:
		w.err = ErrCorrupt
	default:
		w.err = &InvalidError{name}
	}
}
