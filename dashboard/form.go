package dashboard

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/storageapi/storageapi/apierr"
)

// A form is a user's input with its errors.
type form struct {
	Values url.Values
	Errors map[string]string // by field
}

func newForm(values url.Values) form {
	return form{Values: values, Errors: make(map[string]string)}
}

// A fieldView is one field of a form.
type fieldView struct{ Name, Value, Error string }

// Has reports whether a checkbox or radio button is on.
func (f form) Has(name, value string) bool { return slices.Contains(f.Values[name], value) }

// refuse sets the error of a field if err is a validation error, and returns any other error.
func (f form) refuse(name string, err error) error {
	rule, ok := errors.AsType[*apierr.ValidationError](err)
	if !ok {
		return err
	}
	f.Errors[name] = sentence(rule.Reason)
	return nil
}

// sentence turns the reason of a validation error into a sentence.
func sentence(reason string) string {
	first, size := utf8.DecodeRuneInString(reason)
	return strings.TrimSuffix(string(unicode.ToUpper(first))+reason[size:], ".") + "."
}

// newNonce returns the idempotency key of a new form.
func newNonce() string { return "dashboard-" + rand.Text() }

// version returns a hash of a state, which shows whether a form is out of date.
func version(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		h.Write(binary.AppendUvarint(nil, uint64(len(part))))
		h.Write([]byte(part))
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:15])
}

// errChanged is the error of a form that is out of date.
var errChanged = errors.New("changed after the form was loaded")

// graces are the grace periods to choose from.
var graces = []choice{
	{"0s", "Immediately"},
	{"1h", "In 1 hour"},
	{"24h", "In 1 day"},
	{"168h", "In 7 days"},
	{"720h", "In 30 days"},
}

// A choice is one of several options.
type choice struct{ Value, Label string }

// grace returns the grace period of a form, which must be one of graces.
func (f form) grace() (time.Duration, bool) {
	value := f.Values.Get("grace")
	if !slices.ContainsFunc(graces, func(c choice) bool { return c.Value == value }) {
		f.Errors["grace"] = "Select one of the options."
		return 0, false
	}
	grace, err := time.ParseDuration(value)
	return grace, err == nil
}

// minuteOf returns the value of a field with a date and time in UTC, rounded down to the minute.
func minuteOf(t time.Time) string { return t.UTC().Format("2006-01-02T15:04") }

// period returns the period of the fields "from" and "to". It sets an error unless it begins before
// it ends.
func (f form) period() (from, to time.Time) {
	from, to = f.moment("from"), f.moment("to")
	if !to.IsZero() && !from.Before(to) {
		f.Errors["to"] = "Must be after “Published from”."
	}
	return from, to
}

// filled returns the fields that have a value, out of those named.
func (f form) filled(names ...string) url.Values {
	filled := make(url.Values)
	for _, name := range names {
		if value := f.Values.Get(name); value != "" {
			filled.Set(name, value)
		}
	}
	return filled
}

// moment parses a field with a date and time in UTC, which may be empty.
func (f form) moment(name string) time.Time {
	value := f.Values.Get(name)
	if value == "" {
		return time.Time{}
	}
	for _, layout := range [...]string{"2006-01-02T15:04", "2006-01-02T15:04:05", "2006-01-02"} {
		if at, err := time.Parse(layout, value); err == nil {
			return at
		}
	}
	f.Errors[name] = "Enter a date and time such as 2026-11-21T16:30."
	return time.Time{}
}
