package scopes

import (
	"encoding/json"
	"fmt"
	"iter"
	"math/bits"
	"strings"
)

// A Set is a set of scopes that remembers the order they were added in. It is
// a value of 16 bytes without pointers: copying it copies the set, and no
// operation but the ones that return a slice, a string or JSON allocates. The
// zero Set is empty and grants nothing.
//
// Sets with the same members in the same order are ==; sets that cover each
// other have the same members.
type Set struct {
	order uint64 // four bits a member, the first one lowest
	bits  uint16 // bit s set for member s
}

// Of returns the set of the given scopes in their order, duplicates folded
// into the first. Zero scopes are left out.
func Of(members ...Scope) Set {
	var set Set
	for _, s := range members {
		set = set.With(s)
	}
	return set
}

// All returns the set of all scopes, in the order of docs/spec.md, section 5.
func All() Set {
	var set Set
	for s := EnvironmentsRead; s <= AccountRead; s++ {
		set = set.With(s)
	}
	return set
}

// ParseSet returns the set of the named scopes in their order, duplicates
// folded into the first. The error wraps [ErrUnknown] and names every unknown
// scope, up to ten of them.
func ParseSet(names []string) (Set, error) {
	var set Set
	var unknown []string
	for _, name := range names {
		s, err := Parse(name)
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

// With returns the set with s added at the end, or the set itself if s is the
// zero Scope or a member already.
func (set Set) With(s Scope) Set {
	if s == 0 || int(s) > count || set.Has(s) {
		return set
	}
	set.order |= uint64(s) << (4 * set.Len())
	set.bits |= 1 << s
	return set
}

// Without returns the set with s removed, the others in their order.
func (set Set) Without(s Scope) Set {
	var rest Set
	for m := range set.All() {
		if m != s {
			rest = rest.With(m)
		}
	}
	return rest
}

// Has reports whether s is a member.
func (set Set) Has(s Scope) bool { return set.bits&(1<<s) != 0 && s != 0 }

// Covers reports whether every member of other is a member of set. Every set
// covers the empty set.
func (set Set) Covers(other Set) bool { return other.bits&^set.bits == 0 }

// Intersects reports whether the sets have a member in common.
func (set Set) Intersects(other Set) bool { return set.bits&other.bits != 0 }

// IsEmpty reports whether the set has no members.
func (set Set) IsEmpty() bool { return set.bits == 0 }

// Len returns the number of members.
func (set Set) Len() int { return bits.OnesCount16(set.bits) }

// All returns an iterator over the members in their order.
func (set Set) All() iter.Seq[Scope] {
	return func(yield func(Scope) bool) {
		for order := set.order; order != 0; order >>= 4 {
			if !yield(Scope(order & 15)) {
				return
			}
		}
	}
}

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
func (set Set) String() string { return strings.Join(set.Names(), " ") }

// MarshalJSON encodes the set as an array of names in their order.
func (set Set) MarshalJSON() ([]byte, error) { return json.Marshal(set.Names()) }

// UnmarshalJSON decodes an array of names as [ParseSet] does.
func (set *Set) UnmarshalJSON(data []byte) error {
	var list []string
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	parsed, err := ParseSet(list)
	if err != nil {
		return err
	}
	*set = parsed
	return nil
}
