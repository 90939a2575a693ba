package scopes

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// A Declaration declares a scope of a host's own.
type Declaration struct {
	// Scope is the name: an area, a colon and an action, each of lower-case letters,
	// digits, "_", "-" and ".", a letter first; at most 64 bytes in all, such as
	// "teams:read". Those of docs/spec.md, section 5, are always there, and not declared.
	Scope Scope

	// Description says to people what the scope permits, such as "List teams": 1 to 200
	// bytes of UTF-8. The dashboard and the OpenAPI document show it.
	Description string
}

// MaxScopes is how many scopes a [Vocabulary] has at most, those of docs/spec.md,
// section 5, included.
const MaxScopes = 128

// A Vocabulary is the scopes that there are: those of docs/spec.md, section 5, and those
// that a host declares. It does not change, so that it may be shared. A nil Vocabulary,
// and the zero one, has those of section 5 alone.
type Vocabulary struct {
	permits map[Scope]string // what the declared ones permit
	own     Set              // those, in their order
}

// NewVocabulary returns the vocabulary of docs/spec.md, section 5, and the declared
// scopes, in their order. The order is for people only: it decides about no key. An error
// names the declaration that is wrong, and what would be right.
func NewVocabulary(declared ...Declaration) (*Vocabulary, error) {
	v := &Vocabulary{permits: make(map[Scope]string, len(declared))}
	if len(declared) > MaxScopes-count {
		return nil, fmt.Errorf("scopes: %d are declared, at most %d can be", len(declared), MaxScopes-count)
	}
	for i, d := range declared {
		_, twice := v.permits[d.Scope]
		wrong := ""
		switch {
		case !d.Scope.wellFormed():
			wrong = "Scope must be an area, a colon and an action, each of lower-case letters, digits, \"_\", \"-\" and \".\", such as \"teams:read\""
		case number(d.Scope) != 0:
			wrong = "Scope is always there, and must not be declared"
		case twice:
			wrong = "Scope must be declared once"
		case d.Description == "" || len(d.Description) > 200 || !utf8.ValidString(d.Description):
			wrong = "Description must be 1 to 200 bytes of UTF-8 that say what the scope permits"
		default:
			v.permits[d.Scope], v.own = d.Description, v.own.With(d.Scope)
			continue
		}
		return nil, fmt.Errorf("scopes: declaration %d, %s: %s", i, quote(string(d.Scope)), wrong)
	}
	return v, nil
}

// Has reports whether there is such a scope.
func (v *Vocabulary) Has(s Scope) bool {
	if number(s) != 0 {
		return true
	}
	if v == nil {
		return false
	}
	_, ok := v.permits[s]
	return ok
}

// Description says what a scope permits; "" for one that there is not.
func (v *Vocabulary) Description(s Scope) string {
	if v != nil && number(s) == 0 {
		return v.permits[s]
	}
	return s.Description()
}

// All returns all scopes: those of docs/spec.md, section 5, in its order, then the
// declared ones in theirs.
func (v *Vocabulary) All() Set {
	set := All()
	if v != nil {
		for s := range v.own.All() {
			set = set.With(s)
		}
	}
	return set
}

// Parse returns the scope of exactly that name: scopes are case-sensitive and have no
// aliases or wildcards. Any other string is an error that wraps [ErrUnknown] and quotes
// at most 32 bytes of the string.
func (v *Vocabulary) Parse(name string) (Scope, error) {
	if s := Scope(name); v.Has(s) {
		return s, nil
	}
	return "", fmt.Errorf("%w %s", ErrUnknown, quote(name))
}

// ParseSet returns the set of the named scopes in their order, duplicates
// folded into the first. The error wraps [ErrUnknown] and names every unknown
// scope, up to ten of them.
func (v *Vocabulary) ParseSet(names []string) (Set, error) {
	var set Set
	var unknown []string
	for _, name := range names {
		s, err := v.Parse(name)
		if err != nil {
			unknown = append(unknown, quote(name))
			continue
		}
		set = set.With(s)
	}
	switch {
	case len(unknown) == 0:
		return set, nil
	case len(unknown) > 10:
		unknown = append(unknown[:10], "…")
	}
	return Set{}, fmt.Errorf("%w %s", ErrUnknown, strings.Join(unknown, ", "))
}

// Resolve returns the set with the members that the vocabulary has, in their order; the
// others, which a key may hold from when they were declared, are kept as [Set.Unknown]. A
// set whose members are all known is returned as it is, without allocation.
func (v *Vocabulary) Resolve(set Set) Set {
	if set.names == "" && set.unknown == "" { // all of section 5
		return set
	}
	known := true
	for s := range set.All() {
		known = known && v.Has(s)
	}
	if known && set.unknown == "" {
		return set
	}
	var resolved Set
	for _, held := range [...]Set{set, {names: set.unknown}} {
		for s := range held.All() {
			if v.Has(s) {
				resolved = resolved.With(s)
			} else if !contains(resolved.unknown, s) {
				resolved.unknown = appended(resolved.unknown, s)
			}
		}
	}
	return resolved
}
