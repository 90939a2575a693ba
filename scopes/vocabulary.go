package scopes

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// A Declaration declares a scope of the host's own.
type Declaration struct {
	// Scope is the name, such as "teams:read". It consists of an area, a colon and an action, at
	// most 64 bytes in total. Area and action each begin with a lower-case letter and consist of
	// lower-case letters, digits, "_", "-" and ".". The scopes in section 5 of docs/spec.md always
	// exist and must not be declared.
	Scope Scope

	// Description explains the scope to people, such as "List teams": 1 to 200 bytes of
	// UTF-8. The dashboard and the OpenAPI document show it.
	Description string
}

// MaxScopes is the maximum number of scopes in a [Vocabulary], including the scopes in
// section 5 of docs/spec.md.
const MaxScopes = 128

// A Vocabulary is the set of valid scopes: the scopes in section 5 of docs/spec.md and the
// scopes that a host declares. It is immutable and may be shared. A nil or zero Vocabulary
// has only the scopes in section 5.
type Vocabulary struct {
	permits map[Scope]string // descriptions of the declared scopes
	own     Set              // declared scopes, in the order of their declaration
	hidden  Set              // scopes that are not offered
}

// NewVocabulary returns a vocabulary with the scopes in section 5 of docs/spec.md and the declared
// scopes. The order of the declarations only affects display. If a declaration is invalid, the
// error names it and states the rule that it breaks.
func NewVocabulary(declared ...Declaration) (*Vocabulary, error) {
	v := &Vocabulary{permits: make(map[Scope]string, len(declared))}
	if len(declared) > MaxScopes-count {
		return nil, fmt.Errorf("scopes: %d scopes declared, at most %d allowed", len(declared), MaxScopes-count)
	}
	for i, d := range declared {
		_, twice := v.permits[d.Scope]
		wrong := ""
		switch {
		case !d.Scope.wellFormed():
			wrong = "Scope must be an area, a colon and an action, each of lower-case letters, digits, \"_\", \"-\" and \".\", such as \"teams:read\""
		case number(d.Scope) != 0:
			wrong = "Scope is built in and must not be declared"
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

// Hide returns a copy of v that does not offer the given scopes of section 5 of docs/spec.md:
// [Vocabulary.All] omits them, and [Vocabulary.Parse] rejects them. They still exist
// ([Vocabulary.Has]), so a key that already holds one keeps the permission. account:read cannot be
// hidden, because reading keys and webhooks over HTTP requires it.
func (v *Vocabulary) Hide(hidden ...Scope) (*Vocabulary, error) {
	var c Vocabulary
	if v != nil {
		c = *v
	}
	for _, s := range hidden {
		switch {
		case number(s) == 0:
			return nil, fmt.Errorf("scopes: %s cannot be hidden: it is not in section 5 of docs/spec.md", quote(string(s)))
		case s == AccountRead:
			return nil, fmt.Errorf("scopes: %s cannot be hidden: reading keys and webhooks over HTTP requires it", quote(string(s)))
		}
		c.hidden = c.hidden.With(s)
	}
	return &c, nil
}

// Has reports whether v contains the scope, hidden or not.
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

// Description returns the description of a scope, or "" if v does not contain it.
func (v *Vocabulary) Description(s Scope) string {
	if v != nil && number(s) == 0 {
		return v.permits[s]
	}
	return specified[number(s)].Description
}

// All returns all scopes that are not hidden. The scopes in section 5 of docs/spec.md come first,
// in the order of that section, then the declared scopes in the order of their declaration.
func (v *Vocabulary) All() Set {
	set := Specified()
	if v != nil {
		for s := range v.hidden.All() {
			set = set.Without(s)
		}
		for s := range v.own.All() {
			set = set.With(s)
		}
	}
	return set
}

// Parse returns the scope with exactly the given name. Scopes are case-sensitive and have no
// aliases or wildcards. For any other string, Parse returns an error that wraps [ErrUnknown] and
// quotes at most 32 bytes of that string.
func (v *Vocabulary) Parse(name string) (Scope, error) {
	if s := Scope(name); v.Has(s) && (v == nil || !v.hidden.Has(s)) {
		return s, nil
	}
	return "", fmt.Errorf("%w %s", ErrUnknown, quote(name))
}

// ParseSet returns the set of the named scopes in the given order. Duplicates count once, at their
// first position. If a scope is unknown, ParseSet returns an error that wraps [ErrUnknown] and
// names up to ten unknown scopes.
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

// Resolve returns the members of set that are scopes of v, in the same order. All other members,
// which are no longer declared, move to [Set.Unknown]. If v has all members, Resolve returns the
// set unchanged, without allocating.
func (v *Vocabulary) Resolve(set Set) Set {
	if set.names == "" && set.unknown == "" { // scopes in section 5 are always known
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
