package transfer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// version is that of the lines which AppendRecord makes. A later one may know more kinds
// and more fields: what does not, refuses them, since nothing of a record may be lost.
const version = 1

// A line is a record as it is written. The payload is that of its kind, in payload.go.
type line struct {
	Kind    Kind            `json:"kind"`
	Version int             `json:"version"`
	Payload json.RawMessage `json:"payload"`
}

// AppendRecord appends a record as a line of JSON, without an end of line. Equal records
// are equal lines. It holds secrets.
func AppendRecord(b []byte, r Record) ([]byte, error) {
	payload, err := encode(r)
	if err != nil {
		return b, err
	}
	encoded, err := json.Marshal(line{r.Kind(), version, payload})
	return append(b, encoded...), err
}

// ParseRecord returns the record of a line that AppendRecord made. The error wraps
// ErrRecord, and holds nothing of the line but names of fields; a field or a kind that is
// not known is refused.
func ParseRecord(b []byte) (Record, error) {
	var l line
	if err := decode(b, &l); err != nil {
		return nil, err
	}
	if l.Version < 1 || l.Version > version {
		return nil, fmt.Errorf("%w: version %d, and this version of the library knows up to %d", ErrRecord, l.Version, version)
	}
	p, known := payloads[l.Kind]
	if !known {
		return nil, fmt.Errorf("%w: kind %.32q is not known", ErrRecord, l.Kind)
	}
	r, err := p(l.Payload)
	if err != nil {
		return nil, err
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	return r, nil
}

// decode decodes exactly one value, of no fields but those of v.
func decode(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil && len(bytes.TrimSpace(b[d.InputOffset():])) > 0 {
		err = errTrailing
	}
	if err == nil {
		return nil
	}
	if of := (*json.UnmarshalTypeError)(nil); errors.As(err, &of) {
		return fmt.Errorf("%w: field %s: must not be a %.16s", ErrRecord, of.Field, of.Value)
	}
	if of := fieldError(""); errors.As(err, &of) {
		return fmt.Errorf("%w: %w", ErrRecord, of)
	}
	return fmt.Errorf("%w: not the JSON of a record that this version knows", ErrRecord)
}

// A fieldError says what is wrong, without the value.
type fieldError string

func (e fieldError) Error() string { return string(e) }

const errTrailing = fieldError("more follows the record")
