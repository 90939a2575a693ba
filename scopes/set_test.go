package scopes_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/scopes"
)

func TestParseSet(t *testing.T) {
	tests := []struct {
		name  string
		names []string
		want  string
	}{
		{"nil", nil, ""},
		{"empty", []string{}, ""},
		{"one", []string{"files:read"}, "files:read"},
		{"the caller's order", []string{"secrets:write", "account:read", "files:read"}, "secrets:write account:read files:read"},
		{"duplicates fold into the first", []string{"files:read", "account:read", "files:read", "account:read"}, "files:read account:read"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			set, err := plain.ParseSet(test.names)
			if err != nil || set.String() != test.want {
				t.Errorf("got %q, %v, want %q", set, err, test.want)
			}
		})
	}
}

func TestParseSet_UnknownScopes_NamesAll(t *testing.T) {
	set, err := plain.ParseSet([]string{"files:read", "nope", "account:read", "files:*"})
	if !errors.Is(err, scopes.ErrUnknown) || !set.IsEmpty() {
		t.Fatalf("got %q, %v", set, err)
	}
	if want := `unknown scope "nope", "files:*"`; err.Error() != want {
		t.Errorf("got %s, want %s", err, want)
	}
}

func TestSet_InJSON_KeepsOrder(t *testing.T) {
	for range 200 {
		want := scopes.Of(shuffled()...)
		data, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if want := strings.ReplaceAll(fmt.Sprintf("%q", want.Names()), " ", ","); string(data) != want {
			t.Fatalf("got %s, want %s", data, want)
		}
		var got scopes.Set
		if err := json.Unmarshal(data, &got); err != nil || got != want {
			t.Fatalf("%s came back as %q, %v", data, got, err)
		}
	}
}

func TestEmptySetGrantsNothing(t *testing.T) {
	var empty scopes.Set
	if data, err := json.Marshal(empty); err != nil || string(data) != "[]" {
		t.Errorf("the empty set marshals as %s, %v", data, err)
	}
	if names := empty.Names(); names == nil || len(names) != 0 {
		t.Errorf("its names are %#v, want an empty list that is not nil", names)
	}
	for s := range scopes.Specified().All() {
		if empty.Has(s) || empty.Covers(scopes.Of(s)) || empty.Intersects(scopes.Of(s)) {
			t.Errorf("the empty set grants %v", s)
		}
	}
}

func TestSet_BadJSON_ReturnsError(t *testing.T) {
	for _, text := range []string{`"files:read"`, `{}`, `1`, `["files:*"]`, `[null]`, `[1]`, `[["files:read"]]`, `["files:read"`, ``} {
		set := scopes.Of(scopes.AccountRead)
		if err := set.UnmarshalJSON([]byte(text)); err == nil || set != scopes.Of(scopes.AccountRead) {
			t.Errorf("%s left %q, %v", text, set, err)
		}
	}
}

func TestSet_With_LeavesOriginalUnchanged(t *testing.T) {
	base := scopes.Of(scopes.FilesRead)
	left, right := base.With(scopes.FilesWrite), base.With(scopes.AccountRead)
	if base.String() != "files:read" || left.String() != "files:read files:write" || right.String() != "files:read account:read" {
		t.Errorf("got %q, %q, %q", base, left, right)
	}
	for range scopes.Specified().All() {
		break // callers may leave the loop early
	}
}

// A model is a simple implementation of a Set, a list of its members in order.
type model []scopes.Scope

func (m model) with(s scopes.Scope) model {
	if slices.Contains(m, s) {
		return m
	}
	return append(slices.Clone(m), s)
}

func (m model) without(s scopes.Scope) model {
	return slices.DeleteFunc(slices.Clone(m), func(x scopes.Scope) bool { return x == s })
}

func (m model) covers(other model) bool {
	return !slices.ContainsFunc(other, func(s scopes.Scope) bool { return !slices.Contains(m, s) })
}

func (m model) intersects(other model) bool {
	return slices.ContainsFunc(other, func(s scopes.Scope) bool { return slices.Contains(m, s) })
}

func TestSet_RandomOperations_MatchesModel(t *testing.T) {
	every := slices.Collect(vocabulary(t).All().All())
	for range 200 {
		set, want, other := scopes.Set{}, model{}, model(shuffled())
		otherSet := scopes.Of(other...)
		for range 40 {
			s := every[rand.IntN(len(every))]
			if rand.IntN(3) > 0 {
				set, want = set.With(s), want.with(s)
			} else {
				set, want = set.Without(s), want.without(s)
			}
			if diff := cmp.Diff(want, append(model{}, slices.Collect(set.All())...)); diff != "" {
				t.Fatalf("members (-want +got):\n%s", diff)
			}
			for _, s := range every {
				if set.Has(s) != slices.Contains(want, s) {
					t.Fatalf("%q.Has(%v) = %v", set, s, set.Has(s))
				}
			}
			switch {
			case set.Len() != len(want), set.IsEmpty() != (len(want) == 0):
				t.Fatalf("%q has length %d", set, set.Len())
			case set != scopes.Of(want...):
				t.Fatalf("%q is not == to the set made at once", set)
			case set != packed(t, set):
				t.Fatalf("%q is packed as %q", set, packed(t, set))
			case set.Covers(otherSet) != want.covers(other), otherSet.Covers(set) != other.covers(want):
				t.Fatalf("%q and %q: wrong Covers", set, otherSet)
			case set.Intersects(otherSet) != want.intersects(other):
				t.Fatalf("%q and %q: wrong Intersects", set, otherSet)
			}
		}
	}
}

func packed(t *testing.T, set scopes.Set) scopes.Set {
	t.Helper()
	unpacked, err := scopes.Unpack(set.Pack())
	if err != nil {
		t.Fatal(err)
	}
	return unpacked
}

// shuffled returns a random selection of scopes in random order. Often it includes scopes declared
// by a host.
func shuffled() []scopes.Scope {
	list := slices.Collect(scopes.Specified().All())
	for i := range rand.IntN(20) {
		list = append(list, teams(i))
	}
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list[:rand.IntN(len(list)+1)]
}
