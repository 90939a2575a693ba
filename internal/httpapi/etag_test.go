package httpapi

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/internal/input"
	"github.com/storageapi/storageapi/internal/listed"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/driver"
)

func TestParseIfMatch(t *testing.T) {
	one := func(tags ...string) precondition { return precondition{given: true, tags: tags} }
	tests := map[string]precondition{
		`*`:                 {given: true, any: true},
		" \t* ":             {given: true, any: true},
		`"a"`:               one(`"a"`),
		`""`:                one(`""`),
		`"a","b"`:           one(`"a"`, `"b"`),
		`"a" , "b"`:         one(`"a"`, `"b"`),
		`"a", ,,"b",`:       one(`"a"`, `"b"`),
		` ,"a"`:             one(`"a"`),
		`"a,b", "*", "W/c"`: one(`"a,b"`, `"*"`, `"W/c"`),
		`W/"a"`:             one(),
		`W/"a", "b"`:        one(`"b"`),
		`"\", "b"`:          one(`"\"`, `"b"`), // a backslash escapes nothing
		`"é"`:               one(`"é"`),
		"\"\xff\"":          one("\"\xff\""),
	}
	for header, want := range tests {
		got, err := parseIfMatch(header)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(precondition{})); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", header, err, diff)
		}
	}
	for _, header := range []string{
		``, ` `, `,`, `a`, `"a`, `a"`, `"`, `W/`, `W/a`, `w/"a"`, `W/ "a"`, `"a""b"`, `"a" "b"`, `"a";`, `*, "a"`, `"a", *`, `**`, `"a b"`, "\"a\tb\"", "\"a\x00\"", "\"a\x7f\"", `'a'`,
	} {
		_, err := parseIfMatch(header)
		if wrong := input.InvalidFields(err); len(wrong) != 1 || wrong[0].Field != "If-Match" {
			t.Errorf("%q: got error %v, want one that names If-Match", header, err)
		}
	}
}

func TestCondition(t *testing.T) {
	tests := []struct {
		header string
		holds  bool
	}{
		{`"abc"`, true},
		{`"x", "abc"`, true},
		{`*`, true},
		{`"ABC"`, false},
		{`"ab"`, false},
		{`W/"abc"`, false}, // weak tags never match
		{`"x"`, false},
	}
	for _, test := range tests {
		condition, err := parseIfMatch(test.header)
		if err != nil {
			t.Fatal(err)
		}
		if got := condition.check(`"abc"`) == nil; got != test.holds {
			t.Errorf("If-Match: %s holds: %v, want %v", test.header, got, test.holds)
		}
	}
	if err := (precondition{}).check(`"abc"`); err != nil {
		t.Errorf("without If-Match: %v", err)
	}
}

func FuzzIfMatch(f *testing.F) {
	for _, seed := range []string{`*`, `"a"`, `W/"a", "b"`, ` , "a,b" ,,`, `"a`, `W/`, "\"\xff\"", `"a""b"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		parsed, err := parseIfMatch(header)
		if err != nil {
			if len(input.InvalidFields(err)) != 1 || parsed.given || strings.Contains(err.Error(), "\n") {
				t.Errorf("%q: %v with %v", header, err, parsed)
			}
			return
		}
		for _, tag := range parsed.tags { // each tag alone must be a valid If-Match and match itself
			again, err := parseIfMatch(tag)
			if err != nil || len(again.tags) != 1 || again.tags[0] != tag || parsed.check(tag) != nil {
				t.Errorf("%q has the tag %q, which is %v, %v", header, tag, again, err)
			}
		}
		if (parsed.check("no tag") == nil) != parsed.any {
			t.Errorf("%q holds for anything", header)
		}
	})
}

func TestETag(t *testing.T) {
	first := etag(&listed.Key{Name: "a"})
	if condition, err := parseIfMatch(first); err != nil || condition.check(first) != nil || len(first) != 24 {
		t.Errorf("%s is no tag of 128 bits: %v", first, err)
	}
	again := etag(&listed.Key{Name: "a", LastUsedAt: time.Now()})
	renamed := etag(&listed.Key{Name: "b"})
	rotated := etag(&listed.Key{Name: "a", Hash: driver.Hash{Sum: [32]byte{1}}})
	if again != first || renamed == first || rotated == first || rotated == renamed {
		t.Errorf("tags of one state %s and %s, of others %s and %s", first, again, renamed, rotated)
	}
}

// A webhook's tag changes when a secret changes, but is not computed from it: a client must not be
// able to test guesses of a secret against the tag.
func TestETag_WebhookSecrets_AreCountedOnly(t *testing.T) {
	tag := func(secret signing.Secret, value string, version uint64) string {
		return etag(&listed.Webhook{Secret: secret, Headers: []driver.Header{{Name: "X-Token", Value: value, Secret: true}}, SecretsVersion: version})
	}
	secret := signing.NewSecret()
	first := tag(secret, "guessable", 1)
	if tag(signing.NewSecret(), "guessable", 1) != first || tag(secret, "different", 1) != first {
		t.Error("the tag depends on a secret")
	}
	if tag(secret, "guessable", 2) == first {
		t.Error("the tag does not change with the secrets")
	}
}
