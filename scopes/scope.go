package scopes

import (
	"errors"
	"fmt"
	"strings"
)

// A Scope is one permission that an API key can carry, by its name, such as "files:read":
// an area, a colon and an action. The zero Scope is none.
//
// The constants are those of docs/spec.md, section 5. A host has scopes of its own as
// constants, too, and declares them once in a [Vocabulary]:
//
//	const TeamsRead scopes.Scope = "teams:read"
type Scope string

// The scopes of docs/spec.md, section 5, in its order.
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

// specified is the table of docs/spec.md, section 5. A scope's place in it, from 1 to 13,
// is its number; numbers never change, since stores keep them.
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

// number returns the scope's place in specified, or 0 for one of a host's own. The
// compiler makes a search of it that takes a few nanoseconds.
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

// ErrUnknown is wrapped by the error of every parse that met a string which is
// not a scope. Use [errors.Is].
var ErrUnknown = errors.New("unknown scope")

// Parse is [Vocabulary.Parse] of the scopes of docs/spec.md, section 5, alone.
func Parse(name string) (Scope, error) { return (*Vocabulary)(nil).Parse(name) }

// quote quotes what a stranger sent, without letting it be long.
func quote(name string) string {
	const most = 32
	if len(name) > most {
		return fmt.Sprintf("%q…", name[:most])
	}
	return fmt.Sprintf("%q", name)
}

// maxName bounds the length of a scope's name, in bytes.
const maxName = 64

// wellFormed reports whether the scope has the form of a scope's name, whether or not
// there is one of that name: an area, a colon and an action, each of lower-case letters,
// digits, "_", "-" and ".", a letter first; at most 64 bytes in all.
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

// Area returns the part of the name before the colon: "files" of "files:read".
func (s Scope) Area() string {
	area, _, _ := strings.Cut(string(s), ":")
	return area
}

// String returns the scope's name.
func (s Scope) String() string { return string(s) }

// Description says in the words of docs/spec.md, section 5, what the scope permits; ""
// for any other scope. What those of a host permit, [Vocabulary.Description] says.
func (s Scope) Description() string { return specified[number(s)].Description }

// MarshalText implements [encoding.TextMarshaler]. What has not the form of a scope's
// name, such as the zero Scope, is an error that wraps [ErrUnknown].
func (s Scope) MarshalText() ([]byte, error) {
	if !s.wellFormed() {
		return nil, fmt.Errorf("scopes: %w %s", ErrUnknown, quote(string(s)))
	}
	return []byte(s), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler]. It takes every name of the form of
// a scope's, since a program that reads one need not know the [Vocabulary] that has it;
// [Vocabulary.Has] tells whether there is such a scope.
func (s *Scope) UnmarshalText(text []byte) error {
	read := Scope(text)
	if !read.wellFormed() {
		return fmt.Errorf("%w %s", ErrUnknown, quote(string(text)))
	}
	*s = read
	return nil
}
