package apikeys_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/memory"
)

// find returns the names of all keys that a filter admits, and how many pages they are on.
func find(t *testing.T, service *apikeys.KeyService, filter apikeys.Filter, limit int) (names []string, pages int) {
	t.Helper()
	page := apikeys.Page{Limit: limit}
	for {
		found, err := service.Find(t.Context(), account, filter, page)
		if err != nil || len(found.Keys) > limit {
			t.Fatalf("%d keys on a page of %d: %v", len(found.Keys), limit, err)
		}
		for _, key := range found.Keys {
			names = append(names, key.Name)
		}
		if pages++; found.Next == "" {
			return names, pages
		}
		page.After = found.Next
	}
}

func TestFind(t *testing.T) {
	service, clock := newClocked(t)
	tokens := make(map[string]apikeys.Token)
	for i, name := range []string{"Deploy EU", "deploy us", "İstanbul ÉTÉ", "backup"} {
		clock.Set(noon.Add(time.Duration(i) * time.Hour))
		set := scopes.Of(scopes.FilesRead, scopes.FilesWrite)
		if i%2 == 1 {
			set = readFiles
		}
		_, token, err := service.Create(t.Context(), account, apikeys.CreateParams{Name: name, Scopes: set})
		if err != nil {
			t.Fatal(err)
		}
		tokens[name] = token
	}
	clock.Set(noon.Add(10 * time.Hour))
	accepted(t, service, tokens["deploy us"].Reveal()) // which is not written yet
	tests := []struct {
		what   string
		filter apikeys.Filter
		want   string
	}{
		{"all", apikeys.Filter{}, "backup,İstanbul ÉTÉ,deploy us,Deploy EU"},
		{"by name, in any case", apikeys.Filter{Name: "DEPLOY"}, "deploy us,Deploy EU"},
		{"by a part of the name", apikeys.Filter{Name: "été"}, "İstanbul ÉTÉ"},
		{"by no wildcard", apikeys.Filter{Name: "%"}, ""},
		{"by scope", apikeys.Filter{Scopes: readFiles}, "backup,İstanbul ÉTÉ,deploy us,Deploy EU"},
		{"by another scope", apikeys.Filter{Scopes: scopes.Of(scopes.FilesWrite)}, "İstanbul ÉTÉ,Deploy EU"},
		{"by scopes, of which it must have all", apikeys.Filter{Scopes: scopes.Of(scopes.FilesRead, scopes.AccountRead)}, ""},
		{"unused since a use", apikeys.Filter{UnusedSince: noon.Add(10 * time.Hour)}, "backup,İstanbul ÉTÉ,Deploy EU"},
		{"unused since after it", apikeys.Filter{UnusedSince: noon.Add(10*time.Hour + time.Millisecond)}, "backup,İstanbul ÉTÉ,deploy us,Deploy EU"},
		{"unused since before some were created", apikeys.Filter{UnusedSince: noon.Add(2 * time.Hour)}, "Deploy EU"},
		{"unused since the first was created", apikeys.Filter{UnusedSince: noon}, ""},
		{"by all", apikeys.Filter{Name: "eu", Scopes: readFiles, UnusedSince: noon.Add(time.Hour)}, "Deploy EU"},
	}
	for _, test := range tests {
		for _, limit := range []int{1, 2, 100, math.MaxInt} {
			names, pages := find(t, service, test.filter, limit)
			if got := strings.Join(names, ","); got != test.want {
				t.Errorf("%s, %d a page: %s, want %s", test.what, limit, got, test.want)
			}
			if most := max((len(names)+limit-1)/limit, 1); limit < math.MaxInt && pages != most {
				t.Errorf("%s: %d pages of %d, want %d", test.what, pages, limit, most)
			}
		}
	}
	for _, filter := range []apikeys.Filter{{Name: "\xff"}, {Name: strings.Repeat("é", 129)}} {
		wrong := (*apikeys.ValidationError)(nil)
		if _, err := service.Find(t.Context(), account, filter, apikeys.Page{Limit: 1}); !errors.As(err, &wrong) || wrong.Field != "name" {
			t.Errorf("Find = %v", err)
		}
	}
}

// TestFindIsBounded: a page looks at 1,000 keys, and says where to go on.
func TestFindIsBounded(t *testing.T) {
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
	names, pages := find(t, service, apikeys.Filter{Name: "wanted"}, 10)
	if diff := cmp.Diff(want, names); diff != "" || pages != 3 {
		t.Errorf("on %d pages (-want +got):\n%s", pages, diff)
	}
	if names, pages := find(t, service, apikeys.Filter{Name: "none"}, 10); len(names) != 0 || pages != 3 {
		t.Errorf("%q on %d pages", names, pages)
	}
}

// TestFindHeedsNoCase of any script: letters of which there are more than two forms, too.
func TestFindHeedsNoCase(t *testing.T) {
	keys := newService(t, memory.New(), apikeys.Config{})
	for _, name := range []string{"Σίσυφος", "ΣΊΣΥΦΟΣ", "Ключ", "300 \u212a"} {
		if _, _, err := keys.Create(t.Context(), "acct", apikeys.CreateParams{Name: name, Scopes: scopes.All()}); err != nil {
			t.Fatal(err)
		}
	}
	for part, want := range map[string]int{"σίσυφος": 2, "ΣΊΣΥΦΟΣ": 2, "ΦΟΣ": 2, "φος": 2, "КЛЮЧ": 1, "0 k": 1, "Σισυφος": 0} {
		page, err := keys.Find(t.Context(), "acct", apikeys.Filter{Name: part}, apikeys.Page{Limit: 9})
		if err != nil || len(page.Keys) != want {
			t.Errorf("%q finds %d keys, %v, want %d", part, len(page.Keys), err, want)
		}
	}
}
