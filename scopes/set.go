package scopes

import (
	"encoding/json"
	"fmt"
	"iter"
	"math/bits"
	"strings"
)

// A Set is a set of scopes that keeps the order in which they were added. It is a value of 48
// bytes: assigning copies it, and querying, comparing and copying it allocate nothing. Building a
// set of scopes in section 5 of docs/spec.md does not allocate either. Adding a scope declared by a
// host allocates one string that holds the names of all members. The zero Set is empty and grants
// nothing. Two Sets are == if they have the same members in the same order. To compare them without
// their order, check that each covers the other.
type Set struct {
	// If all members are scopes in section 5, order holds their numbers, four bits each, with the
	// first member in the lowest bits. Otherwise names holds the names of all members in order,
	// separated by spaces.
	order uint64
	bits  uint16 // bit n is set if the scope with number n in section 5 is a member
	names string

	unknown string // names that the key holds but that are no longer declared
}

// Of returns the set of the given scopes in the given order, without duplicates. It is meant for
// constants and panics if a scope is malformed, such as the zero Scope. For names from input use
// [FromNames] or [Vocabulary.ParseSet].
func Of(members ...Scope) Set {
	var set Set
	for _, s := range members {
		set = set.With(s)
	}
	return set
}

// Specified returns the scopes in section 5 of docs/spec.md, in the order of that section. It knows
// nothing of the scopes that a host declares or hides: see [Vocabulary.All].
func Specified() Set {
	var set Set
	for _, d := range specified[1:] {
		set = set.With(d.Scope)
	}
	return set
}

// FromNames returns the set of the named scopes in the given order. Duplicates count once, at their
// first position. Stores, and programs that read granted scopes, use it because it needs no
// [Vocabulary]. If a name is malformed, or if there are more than [MaxScopes] names, it returns an
// error that wraps [ErrUnknown].
func FromNames(names []string) (Set, error) {
	var set Set
	for _, name := range names {
		if !Scope(name).wellFormed() {
			return Set{}, fmt.Errorf("%w %s", ErrUnknown, quote(name))
		}
		if set = set.With(Scope(name)); set.Len() > MaxScopes {
			return Set{}, fmt.Errorf("%w: more than %d", ErrUnknown, MaxScopes)
		}
	}
	return set, nil
}

// With returns the set with s added at the end. If s is already a member, it returns the set
// unchanged. It panics if s is malformed, as [Of] does.
func (set Set) With(s Scope) Set {
	if set.Has(s) {
		return set
	}
	n := number(s)
	switch {
	case n == 0 && !s.wellFormed():
		panic(fmt.Sprintf("scopes: malformed scope %s: want a name such as files:read", quote(string(s))))
	case n == 0 && set.names == "" && set.bits != 0: // this is the first scope declared by a host
		set.names, set.order = set.String(), 0
		fallthrough
	case n == 0 || set.names != "":
		set.names = appended(set.names, s)
	default:
		set.order |= uint64(n) << (4 * set.Len())
	}
	if n != 0 {
		set.bits |= 1 << n
	}
	return set
}

// Without returns the set with s removed. The other members keep their order.
func (set Set) Without(s Scope) Set {
	if !set.Has(s) {
		return set
	}
	rest := Set{unknown: set.unknown}
	for m := range set.All() {
		if m != s {
			rest = rest.With(m)
		}
	}
	return rest
}

// Has reports whether s is a member.
func (set Set) Has(s Scope) bool {
	if n := number(s); n != 0 {
		return set.bits&(1<<n) != 0
	}
	return contains(set.names, s)
}

// Covers reports whether set has every member of other, and has every unknown name of other as a
// member or as an unknown name. Every set covers the empty set.
func (set Set) Covers(other Set) bool {
	if other.bits&^set.bits != 0 {
		return false
	}
	for s := range words(other.names) {
		if !set.Has(s) {
			return false
		}
	}
	for s := range words(other.unknown) {
		if !contains(set.unknown, s) && !set.Has(s) {
			return false
		}
	}
	return true
}

// Intersects reports whether the sets have a member in common.
func (set Set) Intersects(other Set) bool {
	if set.bits&other.bits != 0 {
		return true
	}
	for s := range words(other.names) {
		if set.Has(s) {
			return true
		}
	}
	return false
}

// IsEmpty reports whether the set has no members.
func (set Set) IsEmpty() bool { return set.bits == 0 && set.names == "" }

// Len returns the number of members.
func (set Set) Len() int {
	if set.names == "" {
		return bits.OnesCount16(set.bits)
	}
	return 1 + strings.Count(set.names, " ")
}

// All returns an iterator over the members in their order.
func (set Set) All() iter.Seq[Scope] {
	return func(yield func(Scope) bool) { set.each(yield) } // short enough to be inlined, which avoids an allocation
}

// each calls yield for each member until yield returns false. It returns the last result of yield,
// or true for an empty set.
func (set Set) each(yield func(Scope) bool) bool {
	if set.names != "" {
		return eachWord(set.names, yield)
	}
	for order := set.order; order != 0; order >>= 4 {
		if !yield(specified[order&15].Scope) {
			return false
		}
	}
	return true
}

// Unknown returns the names that a key holds although they are no longer declared. They are not
// members of the set and grant nothing. But a key that manages this key must hold them as well,
// because they may be declared again. Unknown returns nil if there are no such names. See
// [Vocabulary.Resolve].
func (set Set) Unknown() []string { return strings.Fields(set.unknown) }

// Names returns the members' names in their order. It never returns nil.
func (set Set) Names() []string {
	list := make([]string, 0, set.Len())
	for s := range set.All() {
		list = append(list, s.String())
	}
	return list
}

// String returns the members' names in their order, separated by spaces, as
// OAuth 2.0 writes scopes (RFC 6749 section 3.3).
func (set Set) String() string {
	if set.names != "" {
		return set.names
	}
	return strings.Join(set.Names(), " ")
}

// Pack returns the set in the format in which stores save it. If all members are scopes in section
// 5 of docs/spec.md, order holds their positions in that section, four bits each, with the first
// member in the lowest bits. Otherwise names holds the names of all members in order, separated by
// spaces, and order is 0. Pack does not allocate.
func (set Set) Pack() (order uint64, names string) { return set.order, set.names }

// Unpack is the inverse of [Set.Pack]. It does not allocate: the set refers to names, and Unpack
// does not check their syntax again. For values that Pack cannot have returned, it returns an error
// that wraps [ErrUnknown].
func Unpack(order uint64, names string) (Set, error) {
	set := Set{order: order, names: names}
	if names != "" {
		own := false
		for s := range words(names) {
			n := number(s)
			if s == "" || n != 0 && set.bits&(1<<n) != 0 {
				return Set{}, fmt.Errorf("%w %s", ErrUnknown, quote(string(s)))
			}
			if n != 0 {
				set.bits |= 1 << n
			}
			own = own || n == 0
		}
		if !own || order != 0 {
			return Set{}, fmt.Errorf("%w: not packed", ErrUnknown)
		}
		return set, nil
	}
	for ; order != 0; order >>= 4 {
		n := order & 15
		if n == 0 || n > count || set.bits&(1<<n) != 0 {
			return Set{}, fmt.Errorf("%w: number %d", ErrUnknown, n)
		}
		set.bits |= 1 << n
	}
	return set, nil
}

// MarshalJSON encodes the set as an array of names in their order.
func (set Set) MarshalJSON() ([]byte, error) { return json.Marshal(set.Names()) }

// UnmarshalJSON decodes an array of names like [FromNames].
func (set *Set) UnmarshalJSON(data []byte) error {
	var list []string
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	parsed, err := FromNames(list)
	if err != nil {
		return err
	}
	*set = parsed
	return nil
}

// words returns an iterator over the names in a space-separated list.
func words(names string) iter.Seq[Scope] {
	return func(yield func(Scope) bool) { eachWord(names, yield) }
}

func eachWord(names string, yield func(Scope) bool) bool {
	for rest := names; rest != ""; {
		var s string
		s, rest, _ = strings.Cut(rest, " ")
		if !yield(Scope(s)) {
			return false
		}
	}
	return true
}

// contains reports whether the space-separated list includes s.
func contains(names string, s Scope) bool {
	for rest := names; rest != ""; {
		var word string
		if word, rest, _ = strings.Cut(rest, " "); word == string(s) {
			return true
		}
	}
	return false
}

func appended(names string, s Scope) string {
	if names == "" {
		return string(s)
	}
	return names + " " + string(s)
}
