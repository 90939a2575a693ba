package httpapi

import (
	"net/http"
	"net/url"
	"testing"
	"time"
)

func TestPath(t *testing.T) {
	tests := []struct{ requestURI, path, want string }{
		{"/v2/api-keys", "/v2/api-keys", "/v2/api-keys"},
		{"/v2/api-keys?limit=1#x", "/v2/api-keys", "/v2/api-keys"},
		{"/storage/v2/api-keys?a=/v2/api-keys", "/v2/api-keys", "/storage/v2/api-keys"},
		{"/a%2Fb/v2/api-keys", "/v2/api-keys", "/a%2Fb/v2/api-keys"},
		{"http://example.com/storage/v2/api-keys", "/v2/api-keys", "/storage/v2/api-keys"},
		{"http://example.com//storage/v2/api-keys", "/v2/api-keys", "/v2/api-keys"},
		{"//evil.example/v2/api-keys", "/v2/api-keys", "/v2/api-keys"},
		{"//v2/api-keys", "/v2/api-keys", "/v2/api-keys"},
		{"/v3/keys", "/v2/api-keys", "/v2/api-keys"}, // rewritten by the host's router
		{"", "/v2/api-keys", "/v2/api-keys"},
		{"*", "/v2/api-keys", "/v2/api-keys"},
		{"/%zz/v2/api-keys", "/v2/api-keys", "/v2/api-keys"},
	}
	for _, test := range tests {
		r := &http.Request{RequestURI: test.requestURI, URL: &url.URL{Path: test.path}}
		if got := pathOf(r); got != test.want {
			t.Errorf("asked for %q, stripped to %q: got %q, want %q", test.requestURI, test.path, got, test.want)
		}
	}
}

func TestTimestamp(t *testing.T) {
	tests := []struct {
		at   time.Time
		want string
	}{
		{time.Time{}, "null"},
		{noon, `"2026-01-31T12:00:00.000Z"`},
		{noon.Add(7 * time.Millisecond).In(time.FixedZone("", 3600)), `"2026-01-31T12:00:00.007Z"`},
	}
	for _, test := range tests {
		if got, err := timestamp(test.at).MarshalJSON(); string(got) != test.want || err != nil {
			t.Errorf("%v: got %s, %v, want %s", test.at, got, err, test.want)
		}
	}
}
