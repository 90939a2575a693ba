package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/storageapi/storageapi/internal/input"
)

// A field is a field that the JSON object in a request may have.
type field struct {
	name     string
	required bool
	set      func(json.RawMessage) error
}

// A value is the type of a field: a string, an array of strings, an object of strings and nulls, a
// boolean, or a whole number. JSON may write the number as 1.0 or 1e0. Numbers beyond ±maxWhole are
// reduced to that limit.
type value interface {
	string | []string | map[string]*string | int64 | bool
}

// required returns a field that must be present. It stores the result of parse in target.
func required[J value, T any](name string, target *T, parse func(J) (T, error)) field {
	return field{name, true, func(raw json.RawMessage) error {
		value, err := parseJSON[J](name, raw)
		if err != nil {
			return err
		}
		*target, err = parse(value)
		return err
	}}
}

// optional returns a field that may be absent or null. In both cases target stays unchanged.
func optional[J value, T any](name string, target *T, parse func(J) (T, error)) field {
	f := required(name, target, parse)
	set := f.set
	f.required = false
	f.set = func(raw json.RawMessage) error {
		if raw[0] == 'n' {
			return nil
		}
		return set(raw)
	}
	return f
}

// patch returns a field that may be absent but not null. If it is absent, target stays nil.
func patch[J value, T any](name string, target **T, parse func(J) (T, error)) field {
	var value T
	f := required(name, &value, parse)
	set := f.set
	f.required = false
	f.set = func(raw json.RawMessage) error {
		if err := set(raw); err != nil {
			return err
		}
		*target = &value
		return nil
	}
	return f
}

// patchValue is like patch, but for a slice or map, which stays nil if the field is absent.
func patchValue[J value, T any](name string, target *T, parse func(J) (T, error)) field {
	f := required(name, target, parse)
	f.required = false
	return f
}

// identity is the parse function for fields that the service validates.
func identity[J value](value J) (J, error) { return value, nil }

// nullablePatch is like patch, but also allows null, which sets the zero value.
func nullablePatch[J value, T any](name string, target **T, parse func(J) (T, error)) field {
	f := patch(name, target, parse)
	set := f.set
	f.set = func(raw json.RawMessage) error {
		if raw[0] == 'n' {
			*target = new(T)
			return nil
		}
		return set(raw)
	}
	return f
}

// decodeObject decodes one JSON object that has only the given fields, each at most once. Unlike
// encoding/json it matches names exactly and rejects unknown fields: otherwise a misspelt expiresAt
// would create a key that never expires. It returns the validation errors of all fields.
func decodeObject(data []byte, fields ...field) error {
	if err := checkJSON(data); err != nil {
		return err
	}
	seen := make(map[string]bool)
	wrong := eachMember(data, func(name string, raw json.RawMessage) error { return setField(fields, seen, name, raw) })
	for _, f := range fields {
		if f.required && !seen[f.name] {
			wrong = input.JoinInvalid(wrong, invalid(f.name, "is required"))
		}
	}
	return wrong
}

// eachMember calls visit with the members of a valid JSON object, and returns the validation errors
// of all members.
func eachMember(data []byte, visit func(name string, raw json.RawMessage) error) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	var wrong error           // validation errors
	_, err := decoder.Token() // the opening brace
	for err == nil && decoder.More() {
		var name json.Token
		var raw json.RawMessage
		if name, err = decoder.Token(); err == nil {
			err = decoder.Decode(&raw)
		}
		if err == nil {
			wrong = input.JoinInvalid(wrong, visit(name.(string), raw))
		}
	}
	if err != nil {
		return err
	}
	return wrong
}

func setField(fields []field, seen map[string]bool, name string, raw json.RawMessage) error {
	i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
	if i < 0 {
		if len(fields) == 0 {
			return invalid("body", "must be an empty object or absent")
		}
		return invalid("body", fmt.Sprintf("has an unknown field %.32q; the fields are %s", name, names(fields)))
	}
	if seen[name] {
		return invalid(name, "must be given only once")
	}
	seen[name] = true
	return fields[i].set(raw)
}

func names(fields []field) string {
	var list []string
	for _, f := range fields {
		list = append(list, f.name)
	}
	return strings.Join(list, ", ")
}

// checkJSON checks that data is exactly one JSON object in UTF-8. Its use of the stack does not
// grow with the nesting depth.
func checkJSON(data []byte) error {
	const rule = "must be one JSON object"
	if !utf8.Valid(data) {
		return invalid("body", rule+" in UTF-8")
	}
	var whole json.RawMessage
	var syntax *json.SyntaxError
	if err := json.Unmarshal(data, &whole); errors.As(err, &syntax) {
		return invalid("body", fmt.Sprintf("%s; it is not valid JSON at byte %d", rule, syntax.Offset))
	} else if err != nil {
		return invalid("body", rule)
	}
	if bytes.TrimLeft(data, " \t\r\n")[0] != '{' {
		return invalid("body", rule)
	}
	return nil
}

// maxWhole is the largest whole number that a field can have. A float64 represents it exactly.
const maxWhole = 999_999_999_999_999

// parseJSON decodes a field's value, or returns an error if it has another type.
func parseJSON[J value](name string, raw json.RawMessage) (J, error) {
	var value J
	switch target := any(&value).(type) {
	case *int64:
		number, err := strconv.ParseFloat(string(raw), 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) { // then number is infinite, and is reduced to ±maxWhole below
			return value, invalid(name, "must be a whole number, not "+kind(raw))
		}
		if number != math.Trunc(number) {
			return value, invalid(name, "must be a whole number, not a fraction")
		}
		*target = int64(max(-maxWhole, min(number, maxWhole)))
		return value, nil
	case *bool:
		if raw[0] != 't' && raw[0] != 'f' {
			return value, invalid(name, "must be a boolean, not "+kind(raw))
		}
		return value, json.Unmarshal(raw, target)
	case *string:
		if raw[0] != '"' {
			return value, invalid(name, "must be a string, not "+kind(raw))
		}
		return value, json.Unmarshal(raw, target)
	case *[]string:
		if raw[0] != '[' {
			return value, invalid(name, "must be an array of strings, not "+kind(raw))
		}
		var elements []json.RawMessage
		if err := json.Unmarshal(raw, &elements); err != nil {
			return value, err
		}
		for _, element := range elements {
			if element[0] != '"' {
				return value, invalid(name, "must contain only strings, not "+kind(element))
			}
		}
		return value, json.Unmarshal(raw, target)
	case *map[string]*string:
		if raw[0] != '{' {
			return value, invalid(name, "must be an object, not "+kind(raw))
		}
		seen := make(map[string]bool)
		if err := eachMember(raw, func(member string, raw json.RawMessage) error {
			if raw[0] != '"' && raw[0] != 'n' {
				return invalid(name, "must have only strings as values, not "+kind(raw))
			}
			if seen[member] {
				return invalid(name, fmt.Sprintf("must have %.32q only once", member))
			}
			seen[member] = true
			return nil
		}); err != nil {
			return value, err
		}
		return value, json.Unmarshal(raw, target)
	}
	return value, nil
}

// kind returns the name of a JSON value's type, with its article.
func kind(raw json.RawMessage) string {
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	}
	return "a number"
}
