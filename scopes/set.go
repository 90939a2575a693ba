package scopes

import (
	"encoding/json"
	"fmt"
	"iter"
	"math/bits"
	"strings"
)

// A Set is a set of scopes that remembers the order they were added in. It is a value of
// 48 bytes: copying it copies the set, and to ask, compare or copy one allocates nothing.
// Nor does to build one of the scopes of docs/spec.md, section 5; what adds a host's scope
// to others allocates their names. The zero Set is empty and grants nothing.
//
// Sets with the same members in the same order are ==; sets that cover each
// other have the same members.
type Set struct {
	// Members of section 5 alone are in order, four bits each, the first one lowest. If
	// there are others all are in names, in their order, separated by spaces.
	order uint64
	bits  uint16 // bit n set for the member of section 5 with that number
	names string

	unknown string // names that a key holds and that are not declared any more
}

// Of returns the set of the given scopes in their order, without duplicates. It is meant for
// constants, and panics if a scope is malformed, such as the zero Scope: use [FromNames] or
// [ParseSet] for names from elsewhere.
func Of(members ...Scope) Set {
	var set Set
	for _, s := range members {
		set = set.With(s)
	}
	return set
}

// All returns the set of all scopes of docs/spec.md, section 5, in its order.
func All() Set {
	var set Set
	for _, d := range specified[1:] {
		set = set.With(d.Scope)
	}
	return set
}

// ParseSet is [Vocabulary.ParseSet] of the scopes of docs/spec.md, section 5, alone.
func ParseSet(names []string) (Set, error) { return (*Vocabulary)(nil).ParseSet(names) }

// FromNames returns the set of the named scopes in their order, duplicates folded into the
// first, whether or not any [Vocabulary] has them: for stores, which keep what was
// granted, and for programs that read it. Names that have not the form of a scope's, and
// more than [MaxScopes], are errors that wrap [ErrUnknown].
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

// With returns the set with s added at the end, or the set itself if s is a member
// already. It panics if s is malformed, as [Of] does.
func (set Set) With(s Scope) Set {
	if set.Has(s) {
		return set
	}
	n := number(s)
	switch {
	case n == 0 && !s.wellFormed():
		panic(fmt.Sprintf("scopes: malformed scope %s: want a name such as files:read", quote(string(s))))
	case n == 0 && set.names == "" && set.bits != 0: // the first other one
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

// Without returns the set with s removed, the others in their order.
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

// Covers reports whether every member of other is a member of set; what is unknown of
// other must be held by set too, known or not. Every set covers the empty set.
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
	return func(yield func(Scope) bool) { set.each(yield) } // short enough to be inlined, so that it does not allocate
}

// each calls yield for each member until that returns false, which it returns then.
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

// Unknown returns the names that a key holds and that are no members, since no one
// declares them any more: they grant nothing, but who manages the key must hold them, for
// they may be declared again. Nil if there are none. See [Vocabulary.Resolve].
func (set Set) Unknown() []string { return strings.Fields(set.unknown) }

// Names returns the members' names in their order; never nil.
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

// Pack returns the set as a store keeps it: order has the numbers of its members, which
// are their places in docs/spec.md, section 5, four bits each, the first one lowest; or, if
// it has other members, too, names has the names of all in their order, separated by
// spaces, and order is 0. It does not allocate.
func (set Set) Pack() (order uint64, names string) { return set.order, set.names }

// Unpack returns the set that Pack returned this of. It does not allocate; the set refers
// to names, whose form is not checked again. An order that Pack cannot have returned is an
// error that wraps [ErrUnknown].
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

// UnmarshalJSON decodes an array of names as [FromNames] does.
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

// words returns an iterator over names that are separated by spaces.
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

// contains reports whether s is one of names that are separated by spaces.
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
