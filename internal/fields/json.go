package fields

import "encoding/json"

// JSON returns the fields of a record that have one of the uses, or all fields if uses is 0, as a
// JSON object without zero values. Times are Unix milliseconds.
func JSON(r Record, uses Uses) ([]byte, error) {
	w := Walk{mode: writing, uses: uses, out: []byte{'{'}}
	r.Fields(&w)
	return append(w.out, '}'), w.err
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
