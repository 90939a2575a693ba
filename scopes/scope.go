package scopes

import (
	"errors"
	"fmt"
)

// A Scope is one permission an API key can carry, such as "files:read". The
// zero Scope is none of them.
//
// Only the thirteen scopes of docs/spec.md, section 5, exist. A Scope is its place in
// that table, from 1 to 13; the numbers never change, so stores may keep them.
type Scope uint8

// The scopes of docs/spec.md, section 5, in its order.
const (
	EnvironmentsRead  Scope = iota + 1 // List and retrieve environments
	EnvironmentsWrite                  // Create, update, delete environments
	FilesRead                          // List, retrieve, download files
	FilesWrite                         // Upload and delete files
	MembersRead                        // List environment members
	MembersWrite                       // Add, update, remove members
	PublishersRead                     // Read publisher configuration
	PublishersWrite                    // Create, update, delete publishers
	AggregatorsRead                    // Read aggregator configuration
	AggregatorsWrite                   // Update, delete aggregators
	SecretsRead                        // Read secrets
	SecretsWrite                       // Create, update, delete secrets
	AccountRead                        // Read account info and usage
)

const count = int(AccountRead)

const _ = uint(15 - count) // a Set has four bits for each member

var names = [count + 1]string{
	EnvironmentsRead:  "environments:read",
	EnvironmentsWrite: "environments:write",
	FilesRead:         "files:read",
	FilesWrite:        "files:write",
	MembersRead:       "members:read",
	MembersWrite:      "members:write",
	PublishersRead:    "publishers:read",
	PublishersWrite:   "publishers:write",
	AggregatorsRead:   "aggregators:read",
	AggregatorsWrite:  "aggregators:write",
	SecretsRead:       "secrets:read",
	SecretsWrite:      "secrets:write",
	AccountRead:       "account:read",
}

var descriptions = [count + 1]string{
	EnvironmentsRead:  "List and retrieve environments",
	EnvironmentsWrite: "Create, update, delete environments",
	FilesRead:         "List, retrieve, download files",
	FilesWrite:        "Upload and delete files",
	MembersRead:       "List environment members",
	MembersWrite:      "Add, update, remove members",
	PublishersRead:    "Read publisher configuration",
	PublishersWrite:   "Create, update, delete publishers",
	AggregatorsRead:   "Read aggregator configuration",
	AggregatorsWrite:  "Update, delete aggregators",
	SecretsRead:       "Read secrets",
	SecretsWrite:      "Create, update, delete secrets",
	AccountRead:       "Read account info and usage",
}

// ErrUnknown is wrapped by the error of every parse that met a string which is
// not a scope. Use [errors.Is].
var ErrUnknown = errors.New("unknown scope")

// Parse returns the scope with exactly the given name: scopes are
// case-sensitive and have no aliases or wildcards. Any other string is an
// error that wraps [ErrUnknown] and quotes at most 32 bytes of the string.
func Parse(name string) (Scope, error) {
	for s := EnvironmentsRead; s <= AccountRead; s++ {
		if names[s] == name {
			return s, nil
		}
	}
	return 0, fmt.Errorf("%w %s", ErrUnknown, quote(name))
}

// quote quotes what a stranger sent, without letting it be long.
func quote(name string) string {
	const most = 32
	if len(name) > most {
		return fmt.Sprintf("%q…", name[:most])
	}
	return fmt.Sprintf("%q", name)
}

// String returns the scope's name, or "" for the zero Scope.
func (s Scope) String() string {
	if int(s) > count {
		return ""
	}
	return names[s]
}

// Description says in the words of docs/spec.md, section 5, what the scope permits; "" for
// the zero Scope.
func (s Scope) Description() string {
	if int(s) > count {
		return ""
	}
	return descriptions[s]
}

// MarshalText implements [encoding.TextMarshaler]. The zero Scope is an error.
func (s Scope) MarshalText() ([]byte, error) {
	if s == 0 || int(s) > count {
		return nil, fmt.Errorf("scopes: %w: Scope(%d)", ErrUnknown, uint8(s))
	}
	return []byte(names[s]), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler] as [Parse] does.
func (s *Scope) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err != nil {
		return err
	}
	*s = parsed
	return nil
}
