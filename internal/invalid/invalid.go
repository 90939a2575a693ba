// Package invalid holds the error for input that breaks a rule, which the
// services share and export under a name of their own.
package invalid

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// An Error says which field of the input is wrong and what would be right. Its
// text is for the person who sent the input and holds no secret.
type Error struct {
	Field  string // as the wire writes it: "expiresAt"
	Reason string // what would be right: "must be in the future"
}

// Error returns the field and the reason.
func (e *Error) Error() string { return e.Field + " " + e.Reason }

// Field returns an *Error.
func Field(field, reason string) error { return &Error{field, reason} }

// Account checks the name of an account, which the host chooses.
func Account(account string) error {
	if account == "" || len(account) > 128 || !PlainText(account) {
		return Field("account", "must be 1 to 128 bytes of UTF-8 without control characters")
	}
	return nil
}

// PlainText reports whether s is UTF-8 without control characters.
func PlainText(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}
