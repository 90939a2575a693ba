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

// A form is a user's input with the errors in it.
type form struct {
	Values url.Values
	Errors map[string]string // by field
}

func newForm(values url.Values) form {
	return form{Values: values, Errors: make(map[string]string)}
}

// A fieldView is the template data for a field of a form.
type fieldView struct{ Name, Value, Error string }

// Has reports whether the checkbox or radio button with this name and value is selected.
func (f form) Has(name, value string) bool { return slices.Contains(f.Values[name], value) }

// refuse records err as the error of a field if it is a validation error. It returns any other
// error.
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

// version returns a hash of a state. Forms contain it, so that an outdated form can be detected.
func version(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		h.Write(binary.AppendUvarint(nil, uint64(len(part))))
		h.Write([]byte(part))
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:15])
}

// errChanged is the error for an outdated form.
var errChanged = errors.New("changed after the form was loaded")

// graces are the grace periods that users can choose.
var graces = []choice{
	{"0s", "Immediately"},
	{"1h", "In 1 hour"},
	{"24h", "In 1 day"},
	{"168h", "In 7 days"},
	{"720h", "In 30 days"},
}

// A choice is an option that users can choose in a form.
type choice struct{ Value, Label string }

// grace returns the grace period that the user chose. It returns false if the value is not one of
// graces.
func (f form) grace() (time.Duration, bool) {
	value := f.Values.Get("grace")
	if !slices.ContainsFunc(graces, func(c choice) bool { return c.Value == value }) {
		f.Errors["grace"] = "Select one of the options."
		return 0, false
	}
	grace, err := time.ParseDuration(value)
	return grace, err == nil
}

// resources returns the names in the field "resources", or nil if there are none.
func (f form) resources() []string {
	if names := strings.Fields(f.Values.Get("resources")); len(names) > 0 {
		return names
	}
	return nil
}

// minuteOf formats t in UTC as the value of a date and time field. It drops the seconds.
func minuteOf(t time.Time) string { return t.UTC().Format("2006-01-02T15:04") }

// period returns the period between the fields "from" and "to". If it does not begin before it
// ends, period records an error.
func (f form) period() (from, to time.Time) {
	from, to = f.moment("from"), f.moment("to")
	if !to.IsZero() && !from.Before(to) {
		f.Errors["to"] = "Must be after “Published from”."
	}
	return from, to
}

// filled returns the named fields that are not empty.
func (f form) filled(names ...string) url.Values {
	filled := make(url.Values)
	for _, name := range names {
		if value := f.Values.Get(name); value != "" {
			filled.Set(name, value)
		}
	}
	return filled
}

// moment parses a date and time field in UTC. If it is empty, moment returns the zero time.
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
