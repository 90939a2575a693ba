package scopes

import (
	"errors"
	"fmt"
	"strings"
)

// A Scope is the name of a permission that an API key can have. It consists of an area, a colon and
// an action, such as "files:read". The zero Scope is invalid.
//
// The constants are the scopes in section 5 of docs/spec.md. A host defines constants for
// its own scopes and declares them once in a [Vocabulary]:
//
//	const TeamsRead scopes.Scope = "teams:read"
type Scope string

// The scopes of docs/spec.md, section 5, in the order of that section.
const (
	EnvironmentsRead  Scope = "environments:read"  // List and retrieve environments
	EnvironmentsWrite Scope = "environments:write" // Create, update, delete environments
	FilesRead         Scope = "files:read"         // List, retrieve, download files
	FilesWrite        Scope = "files:write"        // Upload and delete files
	MembersRead       Scope = "members:read"       // List environment members
	MembersWrite      Scope = "members:write"      // Add, update, remove members
	PublishersRead    Scope = "publishers:read"    // Read publisher configuration
	PublishersWrite   Scope = "publishers:write"   // Create, update, delete publishers
	AggregatorsRead   Scope = "aggregators:read"   // Read aggregator configuration
	AggregatorsWrite  Scope = "aggregators:write"  // Update, delete aggregators
	SecretsRead       Scope = "secrets:read"       // Read secrets
	SecretsWrite      Scope = "secrets:write"      // Create, update, delete secrets
	AccountRead       Scope = "account:read"       // Read account info and usage
)

const count = 13

// specified is the table in section 5 of docs/spec.md. The index of a scope, from 1 to 13,
// is its number. Numbers must never change, because stores save them.
var specified = [count + 1]Declaration{
	1:  {EnvironmentsRead, "List and retrieve environments"},
	2:  {EnvironmentsWrite, "Create, update, delete environments"},
	3:  {FilesRead, "List, retrieve, download files"},
	4:  {FilesWrite, "Upload and delete files"},
	5:  {MembersRead, "List environment members"},
	6:  {MembersWrite, "Add, update, remove members"},
	7:  {PublishersRead, "Read publisher configuration"},
	8:  {PublishersWrite, "Create, update, delete publishers"},
	9:  {AggregatorsRead, "Read aggregator configuration"},
	10: {AggregatorsWrite, "Update, delete aggregators"},
	11: {SecretsRead, "Read secrets"},
	12: {SecretsWrite, "Create, update, delete secrets"},
	13: {AccountRead, "Read account info and usage"},
}

// number returns the index of the scope in specified. For any other scope it returns 0. The
// compiler turns the switch into a search that takes a few nanoseconds.
func number(s Scope) int {
	switch s {
	case EnvironmentsRead:
		return 1
	case EnvironmentsWrite:
		return 2
	case FilesRead:
		return 3
	case FilesWrite:
		return 4
	case MembersRead:
		return 5
	case MembersWrite:
		return 6
	case PublishersRead:
		return 7
	case PublishersWrite:
		return 8
	case AggregatorsRead:
		return 9
	case AggregatorsWrite:
		return 10
	case SecretsRead:
		return 11
	case SecretsWrite:
		return 12
	case AccountRead:
		return 13
	}
	return 0
}

// ErrUnknown means that a string is not a scope. Every error about such a string wraps it. Test for
// it with [errors.Is].
var ErrUnknown = errors.New("unknown scope")

// quote quotes untrusted input and truncates it to 32 bytes.
func quote(name string) string {
	const most = 32
	if len(name) > most {
		return fmt.Sprintf("%q…", name[:most])
	}
	return fmt.Sprintf("%q", name)
}

// maxName is the maximum length of a scope, in bytes.
const maxName = 64

// wellFormed reports whether the scope has the syntax of a name, declared or not. The syntax is an
// area, a colon and an action, at most 64 bytes in total. Area and action each consist of a
// lower-case letter followed by lower-case letters, digits, "_", "-" and ".".
func (s Scope) wellFormed() bool {
	area, action, found := strings.Cut(string(s), ":")
	return found && len(s) <= maxName && isWord(area) && isWord(action)
}

func isWord(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z'
		if !letter && (i == 0 || !(c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.')) {
			return false
		}
	}
	return s != ""
}

// Area returns the part of the name before the colon: "files" for "files:read".
func (s Scope) Area() string {
	area, _, _ := strings.Cut(string(s), ":")
	return area
}

// String returns the scope's name.
func (s Scope) String() string { return string(s) }

// MarshalText implements [encoding.TextMarshaler]. If the scope is malformed, such as the zero
// Scope, it returns an error that wraps [ErrUnknown].
func (s Scope) MarshalText() ([]byte, error) {
	if !s.wellFormed() {
		return nil, fmt.Errorf("scopes: %w %s", ErrUnknown, quote(string(s)))
	}
	return []byte(s), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler]. It accepts every well-formed name, because a
// program that reads scopes need not know their [Vocabulary]. To check whether the scope exists,
// use [Vocabulary.Has]. For malformed text it returns an error that wraps [ErrUnknown].
func (s *Scope) UnmarshalText(text []byte) error {
	read := Scope(text)
	if !read.wellFormed() {
		return fmt.Errorf("%w %s", ErrUnknown, quote(string(text)))
	}
	*s = read
	return nil
}
