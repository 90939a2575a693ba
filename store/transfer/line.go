package transfer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// version is the version of the lines that AppendRecord writes. A later version may add kinds and
// fields. Older versions of this module reject them rather than lose a part of a record.
const version = 1

// A line is a record in JSON. The payload depends on the kind, see payload.go.
type line struct {
	Kind    Kind            `json:"kind"`
	Version int             `json:"version"`
	Payload json.RawMessage `json:"payload"`
}

// AppendRecord appends a record as a line of JSON, without a newline. Equal records produce equal
// lines. A line may contain secrets.
func AppendRecord(b []byte, r Record) ([]byte, error) {
	payload, err := encode(r)
	if err != nil {
		return b, err
	}
	encoded, err := json.Marshal(line{r.Kind(), version, payload})
	return append(b, encoded...), err
}

// ParseRecord parses a line made by AppendRecord. It rejects unknown kinds and fields. The error
// wraps ErrRecord. It quotes only field names from the line, so it reveals no secret.
func ParseRecord(b []byte) (Record, error) {
	var l line
	if err := decode(b, &l); err != nil {
		return nil, err
	}
	if l.Version < 1 || l.Version > version {
		return nil, fmt.Errorf("%w: version %d is newer than this library, which supports up to %d", ErrRecord, l.Version, version)
	}
	p, known := payloads[l.Kind]
	if !known {
		return nil, fmt.Errorf("%w: unknown kind %.32q", ErrRecord, l.Kind)
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

// decode decodes b, which must be exactly one JSON value, into v. It rejects fields that v does not
// have.
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
	return fmt.Errorf("%w: invalid JSON or unknown field", ErrRecord)
}

// A fieldError describes an invalid field without its value.
type fieldError string

func (e fieldError) Error() string { return string(e) }

const errTrailing = fieldError("unexpected data after the record")
