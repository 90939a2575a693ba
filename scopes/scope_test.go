package scopes_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/scopes"
)

// plain has no scopes declared by a host.
var plain *scopes.Vocabulary

// specification is a literal copy of the table in docs/spec.md, section 5.
var specification = []struct {
	scope         scopes.Scope
	name, permits string
}{
	{scopes.EnvironmentsRead, "environments:read", "List and retrieve environments"},
	{scopes.EnvironmentsWrite, "environments:write", "Create, update, delete environments"},
	{scopes.FilesRead, "files:read", "List, retrieve, download files"},
	{scopes.FilesWrite, "files:write", "Upload and delete files"},
	{scopes.MembersRead, "members:read", "List environment members"},
	{scopes.MembersWrite, "members:write", "Add, update, remove members"},
	{scopes.PublishersRead, "publishers:read", "Read publisher configuration"},
	{scopes.PublishersWrite, "publishers:write", "Create, update, delete publishers"},
	{scopes.AggregatorsRead, "aggregators:read", "Read aggregator configuration"},
	{scopes.AggregatorsWrite, "aggregators:write", "Update, delete aggregators"},
	{scopes.SecretsRead, "secrets:read", "Read secrets"},
	{scopes.SecretsWrite, "secrets:write", "Create, update, delete secrets"},
	{scopes.AccountRead, "account:read", "Read account info and usage"},
}

func TestScopes_MatchTheSpecification(t *testing.T) {
	var names []string
	for i, want := range specification {
		if order, _ := scopes.Of(want.scope).Pack(); int(order) != i+1 {
			t.Errorf("%s is number %d; stores keep it as %d", want.name, order, i+1)
		}
		if got := want.scope.String(); got != want.name {
			t.Errorf("%s is %q", want.name, got)
		}
		if got := plain.Description(want.scope); got != want.permits {
			t.Errorf("%s permits %q, want %q", want.name, got, want.permits)
		}
		if got, err := plain.Parse(want.name); got != want.scope || err != nil {
			t.Errorf("Parse(%q) = %v, %v", want.name, got, err)
		}
		names = append(names, want.name)
	}
	if diff := cmp.Diff(names, scopes.Specified().Names()); diff != "" {
		t.Errorf("All (-want +got):\n%s", diff)
	}
}

func TestScope_MalformedName_IsRejected(t *testing.T) {
	for _, s := range []scopes.Scope{
		"", " ", "files", ":read", "files:", "files:*", "Files:read", "files: read", "files:read files:write", "files:read:all",
		"9files:read", "files:_read", "f\x00:read", scopes.Scope(strings.Repeat("a", 63) + ":b"),
	} {
		if text, err := s.MarshalText(); !errors.Is(err, scopes.ErrUnknown) {
			t.Errorf("%q marshals as %q, %v", s, text, err)
		}
		if !panics(func() { scopes.Of(scopes.FilesRead, s) }) || !panics(func() { scopes.Specified().With(s) }) {
			t.Errorf("Of and With take %q, want a panic", s)
		}
		if scopes.Specified().Has(s) || scopes.Of("a:b").With("files:read").Has(s) {
			t.Errorf("a set has %q", s)
		}
		if set, err := scopes.FromNames([]string{"files:read", string(s)}); !errors.Is(err, scopes.ErrUnknown) {
			t.Errorf("FromNames(%q) = %q, %v", s, set, err)
		}
	}
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}

func TestParse_UnknownScope_ReturnsError(t *testing.T) {
	for _, name := range []string{
		"", " ", "files", "files:", ":read", "files:delete", "account:write", "files:*", "*", "*:*",
		"Files:read", "FILES:READ", "files:Read", " files:read", "files:read ", "files:read\n", "files:read\x00",
		"files.read", "files:read,files:write", "files:read files:write", "file:read", "fıles:read", "files：read",
	} {
		if got, err := plain.Parse(name); got != "" || !errors.Is(err, scopes.ErrUnknown) {
			t.Errorf("Parse(%q) = %v, %v", name, got, err)
		}
	}
}

func TestErrors_LongInput_IsTruncated(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	_, err := plain.Parse("files:\nread")
	if want := `unknown scope "files:\nread"`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err = plain.Parse(long); err == nil || len(err.Error()) > 100 {
		t.Errorf("the error of a long name has %d bytes", len(err.Error()))
	}
	many := make([]string, 1000)
	for i := range many {
		many[i] = long
	}
	if _, err = plain.ParseSet(many); err == nil || len(err.Error()) > 1000 {
		t.Errorf("the error of many long names has %d bytes", len(err.Error()))
	}
}

func TestScopeInJSON(t *testing.T) {
	type document struct {
		One  scopes.Scope            `json:"one"`
		Keys map[scopes.Scope]string `json:"keys"`
	}
	want := document{scopes.FilesRead, map[scopes.Scope]string{scopes.AccountRead: "x"}}
	data, err := json.Marshal(want)
	if text := `{"one":"files:read","keys":{"account:read":"x"}}`; err != nil || string(data) != text {
		t.Errorf("got %s, %v, want %s", data, err, text)
	}
	var got document
	if err := json.Unmarshal(data, &got); err != nil || !cmp.Equal(want, got) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	s := scopes.FilesRead
	if err := json.Unmarshal([]byte(`"files:*"`), &s); !errors.Is(err, scopes.ErrUnknown) || s != scopes.FilesRead {
		t.Errorf("a bad name left %v, %v", s, err)
	}
}
