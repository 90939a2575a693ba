package scopes_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/scopes"
)

// teams returns the i-th scope declared by a host.
func teams(i int) scopes.Scope { return scopes.Scope(fmt.Sprintf("teams%d:read", i)) }

// vocabulary returns a Vocabulary with 64 scopes in total.
func vocabulary(t testing.TB) *scopes.Vocabulary {
	t.Helper()
	var declared []scopes.Declaration
	for i := range 64 - len(specification) {
		declared = append(declared, scopes.Declaration{Scope: teams(i), Description: fmt.Sprint("List teams ", i)})
	}
	v, err := scopes.NewVocabulary(declared...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestSet_64Scopes_KeepsCallersOrder(t *testing.T) {
	if size := reflect.TypeFor[scopes.Set]().Size(); size > 64 {
		t.Errorf("a Set takes %d bytes", size)
	}
	v := vocabulary(t)
	names := v.All().Names()
	slices.Reverse(names)
	set, err := v.ParseSet(names)
	if err != nil || set.Len() != 64 {
		t.Fatalf("got %d scopes, %v", set.Len(), err)
	}
	if diff := cmp.Diff(names, set.Names()); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if !set.Covers(v.All()) || !v.All().Covers(set) || set == v.All() {
		t.Error("the same members in another order")
	}
}

func TestVocabulary_NoDeclarations_EqualsSpecification(t *testing.T) {
	none, err := scopes.NewVocabulary()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []*scopes.Vocabulary{nil, none, {}} {
		if v.All() != scopes.Specified() || v.Has("teams1:read") || !v.Has(scopes.FilesRead) {
			t.Errorf("it has %q", v.All())
		}
		_, err := v.ParseSet([]string{"files:read", "teams1:read", "nope"})
		if want := `unknown scope "teams1:read", "nope"`; !errors.Is(err, scopes.ErrUnknown) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		if got := v.Description(scopes.FilesRead); got != "List, retrieve, download files" {
			t.Errorf("files:read permits %q", got)
		}
	}
}

func TestVocabulary_IncludesDeclaredScopes(t *testing.T) {
	v, err := scopes.NewVocabulary(
		scopes.Declaration{Scope: "teams:write", Description: "Change teams"},
		scopes.Declaration{Scope: "files:share", Description: "Share files"})
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Join(append(scopes.Specified().Names(), "teams:write", "files:share"), " "); v.All().String() != want {
		t.Errorf("got %q", v.All())
	}
	if s, err := v.Parse("teams:write"); s != "teams:write" || err != nil || v.Description(s) != "Change teams" || s.Area() != "teams" {
		t.Errorf("got %q, %v, %q", s, err, v.Description(s))
	}
	if _, err := plain.Parse("teams:write"); !errors.Is(err, scopes.ErrUnknown) {
		t.Errorf("what one vocabulary has, another has: %v", err)
	}
}

func TestNewVocabulary_InvalidDeclaration_ReturnsError(t *testing.T) {
	many := make([]scopes.Declaration, scopes.MaxScopes-len(specification)+1)
	for i := range many {
		many[i] = scopes.Declaration{Scope: teams(i), Description: "x"}
	}
	for want, declared := range map[string][]scopes.Declaration{
		`declaration 0, "teams": Scope must be an area`:     {{"teams", "Teams"}},
		`declaration 1, "files:read": Scope is built in`:    {{"a:b", "x"}, {"files:read", "x"}},
		`declaration 1, "a:b": Scope must be declared once`: {{"a:b", "x"}, {"a:b", "x"}},
		`declaration 0, "a:b": Description must be`:         {{"a:b", ""}},
		`116 scopes declared, at most 115`:                  many,
	} {
		if v, err := scopes.NewVocabulary(declared...); v != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// If a scope is no longer declared, keys that hold it keep it.
func TestResolve(t *testing.T) {
	v, err := scopes.NewVocabulary(scopes.Declaration{Scope: "teams:read", Description: "List teams"})
	if err != nil {
		t.Fatal(err)
	}
	held := scopes.Of("gone:b", scopes.FilesRead, "teams:read", "gone:a")
	set := v.Resolve(held)
	if want := scopes.Of(scopes.FilesRead, "teams:read"); !slices.Equal(set.Names(), want.Names()) {
		t.Errorf("it is resolved as %q", set)
	}
	if diff := cmp.Diff([]string{"gone:b", "gone:a"}, set.Unknown()); diff != "" {
		t.Errorf("unknown (-want +got):\n%s", diff)
	}
	switch {
	case set.Has("gone:a"), set.Covers(scopes.Of("gone:a")), set.Intersects(scopes.Of("gone:a")):
		t.Error("what is unknown grants something")
	case v.All().Covers(set):
		t.Error("who holds all that is declared manages a key that holds more")
	case !set.Covers(set), !held.Covers(set), !set.Covers(v.Resolve(scopes.Of("gone:a", scopes.FilesRead))):
		t.Error("who holds the same scopes does not manage the key")
	case v.Resolve(set) != set:
		t.Error("it is resolved otherwise the second time")
	case v.Resolve(scopes.Of("gone:a")).Len() != 0, !v.Resolve(scopes.Of("gone:a")).IsEmpty():
		t.Error("a set of nothing known is not empty")
	case v.Resolve(v.All()) != v.All(), v.Resolve(scopes.Specified()) != scopes.Specified():
		t.Error("a set of what is known is changed")
	}
	again, err := scopes.NewVocabulary(scopes.Declaration{"gone:a", "x"}, scopes.Declaration{"gone:b", "x"})
	if err != nil {
		t.Fatal(err)
	}
	if back := again.Resolve(set); !back.Has("gone:a") || !back.Has("gone:b") || back.Has("teams:read") {
		t.Errorf("declared again: %q, %q", back, back.Unknown())
	}
}

func TestHide_HiddenScopes_ExistButAreNotOffered(t *testing.T) {
	full, err := scopes.NewVocabulary(scopes.Declaration{Scope: "teams:read", Description: "List teams"})
	if err != nil {
		t.Fatal(err)
	}
	hidden := []scopes.Scope{scopes.AggregatorsWrite, scopes.EnvironmentsRead, scopes.AggregatorsRead}
	v, err := full.Hide(hidden...)
	if err != nil {
		t.Fatal(err)
	}
	want := "environments:write files:read files:write members:read members:write publishers:read publishers:write secrets:read secrets:write account:read teams:read"
	if got := v.All().String(); got != want {
		t.Errorf("All: got %s, want %s", got, want)
	}
	if full.All().Len() != 14 {
		t.Errorf("Hide changed its receiver: %q", full.All())
	}
	held := scopes.Of(scopes.AggregatorsRead, scopes.FilesRead)
	if got := v.Resolve(held); got != held || !v.Has(scopes.AggregatorsRead) {
		t.Errorf("Resolve: got %q, want %q", got, held)
	}
	if _, err := v.ParseSet([]string{"files:read", "aggregators:read"}); !errors.Is(err, scopes.ErrUnknown) || err.Error() != `unknown scope "aggregators:read"` {
		t.Errorf("ParseSet: got %v", err)
	}
	var none *scopes.Vocabulary
	if v, err := none.Hide(scopes.FilesRead); err != nil || v.All() != scopes.Specified().Without(scopes.FilesRead) {
		t.Errorf("hidden from nil: %q, %v", v.All(), err)
	}
	for _, s := range []scopes.Scope{"teams:read", "", scopes.AccountRead} {
		if _, err := full.Hide(scopes.FilesRead, s); err == nil || !strings.Contains(err.Error(), "cannot be hidden") {
			t.Errorf("Hide(%q): got %v", s, err)
		}
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(uint64(0x21), "")
	f.Add(uint64(0), "teams:read files:read")
	f.Add(uint64(0x11), "")
	f.Add(uint64(0), "files:read")
	f.Add(uint64(0), " ")
	f.Fuzz(func(t *testing.T, order uint64, names string) {
		set, err := scopes.Unpack(order, names)
		if err != nil {
			if !errors.Is(err, scopes.ErrUnknown) {
				t.Errorf("Unpack: %v", err)
			}
			return
		}
		if o, n := set.Pack(); o != order || n != names {
			t.Errorf("%q is packed as %x, %q", set, o, n)
		}
		for s := range set.All() {
			if !set.Has(s) {
				t.Errorf("%q has not %q", set, s)
			}
		}
	})
}
