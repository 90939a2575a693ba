package scopes_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/storageapi/storageapi/scopes"
)

func FuzzParse(f *testing.F) {
	for _, known := range specification {
		f.Add(known.name)
	}
	f.Add("")
	f.Add("files:*")
	f.Add("files:read\x00")
	f.Fuzz(func(t *testing.T, name string) {
		s, err := plain.Parse(name)
		if err != nil {
			if s != "" || !errors.Is(err, scopes.ErrUnknown) || len(err.Error()) > 400 {
				t.Errorf("Parse(%q) = %v, %v", name, s, err)
			}
			return
		}
		if s.String() != name || !scopes.Specified().Has(s) {
			t.Errorf("Parse(%q) = %q", name, s)
		}
	})
}

func FuzzParseSet(f *testing.F) {
	f.Add("")
	f.Add("files:read")
	f.Add(strings.Join(scopes.Specified().Names(), ","))
	f.Add("files:read,files:read,nope,account:read")
	f.Fuzz(func(t *testing.T, list string) {
		names := strings.Split(list, ",")
		set, err := plain.ParseSet(names)
		isUnknown := func(name string) bool { _, err := plain.Parse(name); return err != nil }
		if slices.ContainsFunc(names, isUnknown) {
			if !errors.Is(err, scopes.ErrUnknown) || !set.IsEmpty() {
				t.Errorf("ParseSet(%q) = %q, %v", names, set, err)
			}
			return
		}
		var folded []string
		for _, name := range names {
			if !slices.Contains(folded, name) {
				folded = append(folded, name)
			}
		}
		if err != nil || !slices.Equal(set.Names(), folded) {
			t.Errorf("ParseSet(%q) = %q, %v", names, set, err)
		}
	})
}

// FuzzUnmarshalJSON includes scopes that are in no vocabulary of these tests.
func FuzzUnmarshalJSON(f *testing.F) {
	for _, seed := range []string{`["files:read","teams:read"]`, `[]`, `null`, `["teams:read","teams:read"]`, `["a:b c:d"]`, `[""]`, `{}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var set, again scopes.Set
		if set.UnmarshalJSON(data) != nil {
			if !set.IsEmpty() {
				t.Errorf("%q left %q", data, set)
			}
			return
		}
		text, err := set.MarshalJSON()
		if err == nil {
			err = again.UnmarshalJSON(text)
		}
		if err != nil || again != set || !set.Covers(again) {
			t.Errorf("%q is %q, then %q, %v", data, set, again, err)
		}
		if set.Len() > scopes.MaxScopes || set.Len() != len(set.Names()) {
			t.Errorf("%q has %d scopes", data, set.Len())
		}
	})
}
