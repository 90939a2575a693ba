package apikeys_test

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/driver"
)

// names lists key names, with the expected error for each.
var names = []struct{ name, wrong string }{
	{"ci", ""},
	{"a b\u00a0c\u3000d", ""},
	{strings.Repeat("é", 128), ""},
	{"CI & <deploy>", ""},
	{"Ключ № 1 «основной»", ""},
	{"密钥", ""},
	{"مفتاح", ""},
	{"می\u200cخواهم", ""},                   // Persian, with a non-joiner
	{"क्\u200dष", ""},                       // Devanagari, with a joiner
	{"👩\u200d💻", ""},                        // a woman at her computer
	{"👩\u200d❤\ufe0f\u200d👨", ""},           // a heart that is a picture
	{"🏴\U000e0067\U000e0062\U000e007f", ""}, // a flag, with tags
	{"1\ufe0f\u20e3", ""},                   // a key cap
	{"e\u0301", ""},                         // a letter and its accent
	{"\u0301", ""},                          // an accent alone
	{"a\u00adb", ""},                        // with a soft hyphen
	{"a\u2060b", ""},                        // with a word joiner
	{"\U0003fff0", ""},                      // not assigned yet
	{"\ue000", ""},                          // of private use

	{"", "1 to 128 characters"},
	{strings.Repeat("é", 129), "1 to 128 characters, without control characters, not 129"},
	{"a\xff", "UTF-8"},
	{"a\x00", "control characters"}, {"a\tb", "control characters"}, {"a\nb", "control characters"}, {"\u0085", "control characters"},
	{"a\u2028b", "one line"}, {"a\u2029b", "one line"},
	{"a\u061cb", "must not contain U+061C"}, {"a\u200eb", "must not contain U+200E"}, {"a\u200fb", "must not contain"},
	{"a\u202ab", "must not contain"}, {"a\u202eb", "must not contain"}, {"a\u2066b", "must not contain"}, {"a\u2069b", "must not contain"},
	{"a\u200bb", "must not contain U+200B"},
	{" ", "space"}, {" a", "space"}, {"a ", "space"}, {"\u00a0a", "space"}, {"a\u3000", "space"}, {"\u2003", "space"},
	{"\u2800", "visible"}, {"\u00ad", "visible"}, {"\u3164", "visible"}, {"\ufe0f", "visible"}, {"\u115f\u1160", "visible"}, {"\U000e0041", "visible"},
	{"\u0600", "visible"}, // an Arabic number sign, without a number
	{"\u200d", "U+200D, except between"}, {"\u200ca", "U+200C, except between"}, {"a\u200d", "joiners"}, {"a\u200d\u200db", "joiners"},
	{"a\u200d b", "joiners"}, {"a \u200cb", "joiners"}, {"a\u200c\ufe0f", "joiners"}, {"a\ufeff", "joiners"}, {"\u2060a", "joiners"},
	{"a\u00ad\u200db", "joiners"}, {"a\u034f", "joiners"},
}

func TestNames(t *testing.T) {
	service, _ := newClocked(t)
	key, _ := create(t, service, time.Time{})
	for _, test := range names {
		check := func(err error) {
			t.Helper()
			var invalid *apierr.ValidationError
			switch {
			case test.wrong == "" && err != nil:
				t.Errorf("%+q: %v", test.name, err)
			case test.wrong != "" && (!errors.As(err, &invalid) || invalid.Field != "name" || !strings.Contains(invalid.Reason, test.wrong)):
				t.Errorf("%+q: got %v, want %q", test.name, err, test.wrong)
			}
		}
		_, _, err := service.Create(t.Context(), account, apikeys.CreateParams{Name: test.name, Scopes: readFiles})
		check(err)
		_, err = service.Update(t.Context(), account, key.ID, apikeys.UpdateParams{Name: &test.name})
		check(err)
	}
}

// A key whose name was accepted before the rules existed can still be read and renamed.
func TestOldNamesRemainReadable(t *testing.T) {
	store := newSpy()
	service := newService(t, store, apikeys.Config{})
	const old = " \u202eold\u200b "
	key := apikeys.Key{ID: "key_01", Account: account, Name: old, Scopes: scopes.Specified(), CreatedAt: noon, Hash: driver.Hash{Sum: [32]byte{1}}}
	if err := store.CreateKey(t.Context(), key, driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, err := service.Get(t.Context(), account, key.ID); err != nil || got.Name != old {
		t.Errorf("got %+q, %v", got.Name, err)
	}
	if list, err := service.List(t.Context(), account, apikeys.KeyQuery{Limit: 1}); err != nil || len(list.Keys) != 1 || list.Keys[0].Name != old {
		t.Errorf("listed %+v, %v", list, err)
	}
	if got, err := service.Update(t.Context(), account, key.ID, apikeys.UpdateParams{}); err != nil || got.Name != old {
		t.Errorf("got %+q, %v", got.Name, err)
	}
	if _, _, err := service.Rotate(t.Context(), account, key.ID, apikeys.RotateParams{}); err != nil {
		t.Error(err)
	}
}

// Every accepted name is visible, fits on one line, and displays its characters in the order in
// which they were written.
func FuzzName(f *testing.F) {
	for _, test := range names {
		f.Add(test.name)
	}
	service := newService(f, newSpy(), apikeys.Config{})
	f.Fuzz(func(t *testing.T, name string) {
		if service.Validate(apikeys.CreateParams{Name: name, Scopes: readFiles}) != nil {
			return
		}
		runes := []rune(name)
		if !utf8.ValidString(name) || len(runes) < 1 || len(runes) > 128 || strings.TrimSpace(name) != name {
			t.Fatalf("%+q is taken", name)
		}
		some := false
		for i, r := range runes {
			switch {
			case unicode.IsControl(r), strings.ContainsRune("\u2028\u2029\u061c\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069", r):
				t.Fatalf("%+q is taken", name)
			case r == '\u200c' || r == '\u200d':
				if i == 0 || i == len(runes)-1 || unicode.IsSpace(runes[i-1]) || unicode.IsSpace(runes[i+1]) ||
					unicode.Is(unicode.Join_Control, runes[i-1]) || unicode.Is(unicode.Join_Control, runes[i+1]) {
					t.Fatalf("%+q is taken", name)
				}
			}
			some = some || !unicode.IsSpace(r) && !unicode.Is(unicode.Cf, r)
		}
		if !some {
			t.Fatalf("%+q is taken, and cannot be seen", name)
		}
	})
}
