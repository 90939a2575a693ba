package httpapi

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/internal/input"
)

type thing struct {
	Name string
	Tags []string
	Note string
	Size int64
}

func decodeThing(data []byte) (thing, error) {
	keep := func(s string) (string, error) { return s, nil }
	var got thing
	err := decodeObject(data,
		required("name", &got.Name, keep),
		required("tags", &got.Tags, func(list []string) ([]string, error) { return list, nil }),
		optional("note", &got.Note, keep),
		optional("size", &got.Size, func(n int64) (int64, error) { return n, nil }),
	)
	return got, err
}

func TestDecodeObject(t *testing.T) {
	tests := []struct {
		name string
		body string
		want thing
	}{
		{"all", `{"name":"a","tags":["x","y"],"note":"n"}`, thing{"a", []string{"x", "y"}, "n", 0}},
		{"any order, white space", " {\r\n\t\"tags\" : [ ] , \"name\" : \"a\" } \n", thing{"a", []string{}, "", 0}},
		{"null for what is optional", `{"name":"a","tags":[],"note":null}`, thing{"a", []string{}, "", 0}},
		{"name by escapes", `{"n\u0061me":"a","tags":[]}`, thing{"a", []string{}, "", 0}},
		{"surrogate pair", `{"name":"\ud83d\uDE00","tags":[]}`, thing{"😀", []string{}, "", 0}},
		{"escaped backslash before u", `{"name":"\\ud800","tags":[]}`, thing{`\ud800`, []string{}, "", 0}},
		{"whole number", `{"name":"a","tags":[],"size":-12}`, thing{"a", []string{}, "", -12}},
		{"whole number with a fraction of nothing", `{"name":"a","tags":[],"size":12.00}`, thing{"a", []string{}, "", 12}},
		{"whole number by exponent", `{"name":"a","tags":[],"size":1.2E1}`, thing{"a", []string{}, "", 12}},
		{"minus zero", `{"name":"a","tags":[],"size":-0.0}`, thing{"a", []string{}, "", 0}},
		{"huge number", `{"name":"a","tags":[],"size":1e999}`, thing{"a", []string{}, "", 999_999_999_999_999}},
		{"huge negative number", `{"name":"a","tags":[],"size":-18446744073709551617}`, thing{"a", []string{}, "", -999_999_999_999_999}},
		{"null for a number", `{"name":"a","tags":[],"size":null}`, thing{"a", []string{}, "", 0}},
		{"U+FFFD itself", `{"name":"\ufffd�","tags":[]}`, thing{"��", []string{}, "", 0}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := decodeThing([]byte(test.body))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodeObject_Invalid_ReturnsError(t *testing.T) {
	tests := []struct {
		name string
		body string
		want string // start of the error text
	}{
		{"nothing", ``, "body must be one JSON object; it is not valid JSON at byte 0"},
		{"white space", ` `, "body must be one JSON object; it is not valid JSON at byte 1"},
		{"null", `null`, "body must be one JSON object"},
		{"array", `[{"name":"a"}]`, "body must be one JSON object"},
		{"string", `"name"`, "body must be one JSON object"},
		{"cut off", `{"name":"a"`, "body must be one JSON object; it is not valid JSON at byte 11"},
		{"trailing object", `{"name":"a","tags":[]}{}`, "body must be one JSON object; it is not valid JSON at byte 23"},
		{"trailing comma", `{"name":"a","tags":[],}`, "body must be one JSON object; it is not valid JSON"},
		{"comment", `{"name":"a","tags":[]} // a`, "body must be one JSON object; it is not valid JSON"},
		{"byte order mark", "\ufeff" + `{"name":"a","tags":[]}`, "body must be one JSON object; it is not valid JSON"},
		{"control character", "{\"name\":\"a\nb\",\"tags\":[]}", "body must be one JSON object; it is not valid JSON"},
		{"not UTF-8", "{\"name\":\"\xff\",\"tags\":[]}", "body must be one JSON object in UTF-8"},
		{"UTF-16", "{\x00\"\x00", "body must be one JSON object; it is not valid JSON"},
		{"very deep", strings.Repeat("[", 60_000), "body must be one JSON object; it is not valid JSON"},
		{"very deep and balanced", `{"name":` + strings.Repeat("[", 30_000) + strings.Repeat("]", 30_000) + `}`, "body must be one JSON object; it is not valid JSON"},
		{"deep", `{"name":` + strings.Repeat("[", 5_000) + strings.Repeat("]", 5_000) + `}`, "name must be a string, not an array"},
		{"missing", `{"name":"a"}`, "tags is required"},
		{"empty object", `{}`, "name is required"},
		{"unknown", `{"name":"a","tags":[],"nope":1}`, `body has an unknown field "nope"; the fields are name, tags, note, size`},
		{"wrong case", `{"Name":"a","tags":[]}`, `body has an unknown field "Name"; the fields are name, tags, note, size`},
		{"empty name", `{"":"a"}`, `body has an unknown field ""`},
		{"long unknown name", `{"` + strings.Repeat("x", 1000) + `":1}`, `body has an unknown field "` + strings.Repeat("x", 32) + `"; the`},
		{"twice", `{"name":"a","name":"a","tags":[]}`, "name must be given only once"},
		{"twice by escapes", `{"name":"a","\u006eame":"b","tags":[]}`, "name must be given only once"},
		{"twice, null first", `{"note":null,"note":"b"}`, "note must be given only once"},
		{"number for a string", `{"name":1}`, "name must be a string, not a number"},
		{"true for a string", `{"name":true}`, "name must be a string, not a boolean"},
		{"object for a string", `{"name":{}}`, "name must be a string, not an object"},
		{"null for what is required", `{"name":null}`, "name must be a string, not null"},
		{"number for what is optional", `{"note":1.5}`, "note must be a string, not a number"},
		{"string for an array", `{"tags":"x"}`, "tags must be an array of strings, not a string"},
		{"null for an array", `{"tags":null}`, "tags must be an array of strings, not null"},
		{"null in an array", `{"tags":["a",null]}`, "tags must contain only strings, not null"},
		{"string for a number", `{"size":"1"}`, "size must be a whole number, not a string"},
		{"true for a number", `{"size":true}`, "size must be a whole number, not a boolean"},
		{"fraction", `{"size":0.5}`, "size must be a whole number, not a fraction"},
		{"array in an array", `{"tags":[["a"]]}`, "tags must contain only strings, not an array"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := decodeThing([]byte(test.body))
			if len(input.InvalidFields(err)) == 0 || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got error %v, want one that begins with %q", err, test.want)
			}
			if err != nil && (len(err.Error()) > 300 || !utf8.ValidString(err.Error())) {
				t.Errorf("unfit to be shown: %q", err)
			}
		})
	}
}
