package apikeys_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/memory"
)

// The loop may also stop early.
func TestAll_ReadFails_YieldsOneError(t *testing.T) {
	service, _ := newClocked(t)
	var want []string
	for range 101 { // more than a page
		key, _ := create(t, service, time.Time{})
		want = append([]string{key.ID}, want...)
	}
	var got []string
	for key, err := range service.All(t.Context(), account, apikeys.KeyQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, key.ID)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for key := range service.All(t.Context(), account, apikeys.KeyQuery{}) {
		if key.ID != want[0] {
			t.Errorf("begins with %s, want %s", key.ID, want[0])
		}
		break
	}
	for range service.All(t.Context(), "acct_2", apikeys.KeyQuery{}) {
		t.Error("another account has some")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	errs := 0
	for key, err := range service.All(ended, account, apikeys.KeyQuery{}) {
		if errs++; !errors.Is(err, context.Canceled) || key.ID != "" {
			t.Errorf("got %+v, %v", key, err)
		}
	}
	if errs != 1 {
		t.Errorf("%d errors, want 1", errs)
	}
}

// list returns the names of all keys that the query selects, and the number of pages read.
func list(t *testing.T, service *apikeys.KeyService, query apikeys.KeyQuery) (names []string, pages int) {
	t.Helper()
	for {
		found, err := service.List(t.Context(), account, query)
		if err != nil || len(found.Keys) > query.Limit {
			t.Fatalf("%d keys on a page of %d: %v", len(found.Keys), query.Limit, err)
		}
		for _, key := range found.Keys {
			names = append(names, key.Name)
		}
		if pages++; found.Next == "" {
			return names, pages
		}
		query.After = found.Next
	}
}

func TestList_Filters(t *testing.T) {
	service, clock := newClocked(t)
	tokens := make(map[string]apikeys.Token)
	for i, name := range []string{"Deploy EU", "deploy us", "İstanbul ÉTÉ", "backup"} {
		clock.Set(noon.Add(time.Duration(i) * time.Hour))
		set := scopes.Of(scopes.FilesRead, scopes.FilesWrite)
		if i%2 == 1 {
			set = readFiles
		}
		params := apikeys.CreateParams{Name: name, Scopes: set, Labels: map[string]string{"at": fmt.Sprint(i)}}
		if i < 2 {
			params.ExpiresAt = noon.Add(time.Duration(5+i*15) * time.Hour) // one of the keys expires before the queries
		}
		_, token, err := service.Create(t.Context(), account, params)
		if err != nil {
			t.Fatal(err)
		}
		tokens[name] = token
	}
	clock.Set(noon.Add(10 * time.Hour))
	accepted(t, service, tokens["deploy us"].Reveal()) // the use is not written yet
	tests := []struct {
		what  string
		query apikeys.KeyQuery
		want  string
	}{
		{"all", apikeys.KeyQuery{}, "backup,İstanbul ÉTÉ,deploy us,Deploy EU"},
		{"by name, in any case", apikeys.KeyQuery{Name: "DEPLOY"}, "deploy us,Deploy EU"},
		{"by a part of the name", apikeys.KeyQuery{Name: "été"}, "İstanbul ÉTÉ"},
		{"by no wildcard", apikeys.KeyQuery{Name: "%"}, ""},
		{"by scope", apikeys.KeyQuery{Scopes: readFiles}, "backup,İstanbul ÉTÉ,deploy us,Deploy EU"},
		{"by another scope", apikeys.KeyQuery{Scopes: scopes.Of(scopes.FilesWrite)}, "İstanbul ÉTÉ,Deploy EU"},
		{"by scopes, of which it must have all", apikeys.KeyQuery{Scopes: scopes.Of(scopes.FilesRead, scopes.AccountRead)}, ""},
		{"unused since a use", apikeys.KeyQuery{UnusedSince: noon.Add(10 * time.Hour)}, "backup,İstanbul ÉTÉ,Deploy EU"},
		{"unused since after it", apikeys.KeyQuery{UnusedSince: noon.Add(10*time.Hour + time.Millisecond)}, "backup,İstanbul ÉTÉ,deploy us,Deploy EU"},
		{"unused since before some were created", apikeys.KeyQuery{UnusedSince: noon.Add(2 * time.Hour)}, "Deploy EU"},
		{"unused since the first was created", apikeys.KeyQuery{UnusedSince: noon}, ""},
		{"expired", apikeys.KeyQuery{ExpiresBefore: noon.Add(10 * time.Hour)}, "Deploy EU"},
		{"expired at a time that is excluded", apikeys.KeyQuery{ExpiresBefore: noon.Add(5 * time.Hour)}, ""},
		{"expiring", apikeys.KeyQuery{ExpiresBefore: noon.Add(21 * time.Hour)}, "deploy us,Deploy EU"},
		{"by label", apikeys.KeyQuery{Labels: map[string]string{"at": "1"}}, "deploy us"},
		{"by labels, of which it must have all", apikeys.KeyQuery{Labels: map[string]string{"at": "1", "none": ""}}, ""},
		{"by all", apikeys.KeyQuery{Name: "eu", Scopes: readFiles, UnusedSince: noon.Add(time.Hour), ExpiresBefore: noon.Add(21 * time.Hour)}, "Deploy EU"},
	}
	for _, test := range tests {
		for _, limit := range []int{1, 2, 100, math.MaxInt} {
			test.query.Limit = limit
			names, pages := list(t, service, test.query)
			if got := strings.Join(names, ","); got != test.want {
				t.Errorf("%s, %d a page: %s, want %s", test.what, limit, got, test.want)
			}
			if most := max((len(names)+limit-1)/limit, 1); limit < math.MaxInt && pages != most {
				t.Errorf("%s: %d pages of %d, want %d", test.what, pages, limit, most)
			}
		}
	}
	for _, query := range []apikeys.KeyQuery{{Name: "\xff", Limit: 1}, {Name: strings.Repeat("é", 129), Limit: 1}} {
		wrong := (*apierr.ValidationError)(nil)
		if _, err := service.List(t.Context(), account, query); !errors.As(err, &wrong) || wrong.Field != "name" {
			t.Errorf("List(%.10q) = %v, want a ValidationError for name", query.Name, err)
		}
	}
}

// A page without enough matches must still have a Next.
func TestList_RareMatches_ExaminesAtMost1000KeysPerPage(t *testing.T) {
	service := newService(t, memory.New(), apikeys.Config{MaxPerAccount: -1})
	var want []string
	for i := range 2100 {
		name := "other"
		if i == 50 || i == 2050 {
			name = fmt.Sprint("wanted ", i)
			want = append([]string{name}, want...)
		}
		if _, _, err := service.Create(t.Context(), account, apikeys.CreateParams{Name: name, Scopes: readFiles}); err != nil {
			t.Fatal(err)
		}
	}
	names, pages := list(t, service, apikeys.KeyQuery{Name: "wanted", Limit: 10})
	if diff := cmp.Diff(want, names); diff != "" || pages != 3 {
		t.Errorf("on %d pages (-want +got):\n%s", pages, diff)
	}
	if names, pages := list(t, service, apikeys.KeyQuery{Name: "none", Limit: 10}); len(names) != 0 || pages != 3 {
		t.Errorf("%q on %d pages", names, pages)
	}
}

// Some of the letters have more than two case forms.
func TestList_ByName_IgnoresCaseInAnyScript(t *testing.T) {
	keys := newService(t, memory.New(), apikeys.Config{})
	for _, name := range []string{"Σίσυφος", "ΣΊΣΥΦΟΣ", "Ключ", "300 \u212a"} {
		if _, _, err := keys.Create(t.Context(), "acct", apikeys.CreateParams{Name: name, Scopes: scopes.Specified()}); err != nil {
			t.Fatal(err)
		}
	}
	for part, want := range map[string]int{"σίσυφος": 2, "ΣΊΣΥΦΟΣ": 2, "ΦΟΣ": 2, "φος": 2, "КЛЮЧ": 1, "0 k": 1, "Σισυφος": 0} {
		page, err := keys.List(t.Context(), "acct", apikeys.KeyQuery{Name: part, Limit: 9})
		if err != nil || len(page.Keys) != want {
			t.Errorf("%q finds %d keys, %v, want %d", part, len(page.Keys), err, want)
		}
	}
}
