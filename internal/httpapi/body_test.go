package httpapi

import (
	"net/http"
	"testing"
)

func TestIsJSON(t *testing.T) {
	tests := []struct {
		types []string
		want  bool
	}{
		{[]string{"application/json"}, true},
		{[]string{"Application/JSON"}, true},
		{[]string{"application/json; charset=utf-8"}, true},
		{[]string{`application/json;charset="UTF-8"`}, true},
		{nil, false},
		{[]string{""}, false},
		{[]string{"application/json", "application/json"}, false},
		{[]string{"application/json; charset=iso-8859-1"}, false},
		{[]string{"application/json; charset"}, false},
		{[]string{"application/json, text/plain"}, false},
		{[]string{"application/problem+json"}, false},
		{[]string{"application/jsonp"}, false},
		{[]string{"text/json"}, false},
		{[]string{"text/plain"}, false},
		{[]string{"application/x-www-form-urlencoded"}, false},
	}
	for _, test := range tests {
		if got := isJSON(http.Header{"Content-Type": test.types}); got != test.want {
			t.Errorf("%q: got %v, want %v", test.types, got, test.want)
		}
	}
	coded := http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}}
	if isJSON(coded) {
		t.Error("gzip: got true, want false")
	}
}
