package httpapi

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/auth"
)

func TestRouterRefusesRoutes(t *testing.T) {
	good := route{"GET", "/v2/things", auth.ReadKeys, nil}
	open := route{"GET", "/v2/others", "", nil}
	tests := []struct {
		name   string
		routes []route
		want   string
	}{
		{"without authority", []route{good, open}, "GET /v2/others declares no authority"},
		{"twice", []route{good, good}, "GET /v2/things is there twice"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := newRouter(test.routes)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want one with %q", err, test.want)
			}
		})
	}
}

// TestRoutes is the route table, written down a second time: whoever changes one
// is to think about the other.
func TestRoutes(t *testing.T) {
	type row struct {
		Method, Pattern string
		Action          auth.Action
	}
	var got []row
	for _, r := range new(api).routes() {
		got = append(got, row{r.method, r.pattern, r.action})
	}
	want := []row{
		{"POST", "/v2/api-keys", "create key"},
		{"GET", "/v2/api-keys", "read keys"},
		{"GET", "/v2/api-keys/{id}", "read keys"},
		{"PATCH", "/v2/api-keys/{id}", "update key"},
		{"DELETE", "/v2/api-keys/{id}", "delete key"},
		{"POST", "/v2/api-keys/{id}/rotate", "rotate key"},
		{"POST", "/v2/notifications/webhooks", "create webhook"},
		{"GET", "/v2/notifications/webhooks", "read webhooks"},
		{"GET", "/v2/notifications/webhooks/{id}", "read webhooks"},
		{"DELETE", "/v2/notifications/webhooks/{id}", "delete webhook"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
	for _, r := range want {
		if leastPrivilegeRefusals[r.Action] == "" {
			t.Errorf("no refusal for %q", r.Action)
		}
	}
}

func TestFind(t *testing.T) {
	rt, err := newRouter(new(api).routes())
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		path    string
		pattern string // empty: none
		id      string
	}{
		{"/v2/api-keys", "/v2/api-keys", ""},
		{"/v2/api%2Dkeys", "/v2/api-keys", ""},
		{"/v2/api-keys/key_1", "/v2/api-keys/{id}", "key_1"},
		{"/v2/api-keys/a%2Fb", "/v2/api-keys/{id}", "a/b"},
		{"/v2/api-keys/%2e%2e", "/v2/api-keys/{id}", ".."},
		{"/v2/api-keys/{id}", "/v2/api-keys/{id}", "{id}"},
		{"/v2/api-keys/%00", "/v2/api-keys/{id}", "\x00"},
		{"/v2/api-keys/key_1/rotate", "/v2/api-keys/{id}/rotate", "key_1"},
		{"/v2/notifications/webhooks/wh_1", "/v2/notifications/webhooks/{id}", "wh_1"},
		{"", "", ""},
		{"*", "", ""},
		{"/", "", ""},
		{"/v2", "", ""},
		{"/v2/", "", ""},
		{"/V2/api-keys", "", ""},
		{"/v2/API-keys", "", ""},
		{"/v2/api-keys/", "", ""},
		{"/v2/api-keys//", "", ""},
		{"/v2/api-keys/key_1/", "", ""},
		{"/v2/api-keys/key_1/more", "", ""},
		{"//v2/api-keys", "", ""},
		{"/v2//api-keys", "", ""},
		{"/v2/./api-keys", "", ""},
		{"/v2/../v2/api-keys", "", ""},
		{"/v2%2Fapi-keys", "", ""},
		{"/x/v2/api-keys", "", ""},
		{"/v2/{id}", "", ""},
	}
	for _, test := range tests {
		method := "GET"
		if strings.HasSuffix(test.pattern, "/rotate") {
			method = "POST"
		}
		path, err := url.PathUnescape(test.path)
		if err != nil {
			t.Fatal(err)
		}
		u := &url.URL{Path: path, RawPath: test.path}
		r, id, err := rt.find(&http.Request{Method: method, URL: u})
		pattern := ""
		if r != nil {
			pattern = r.pattern
		}
		if pattern != test.pattern || id != test.id || (err == nil) != (pattern != "") {
			t.Errorf("find %q: got pattern %q, id %q, error %v; want %q, %q", test.path, pattern, id, err, test.pattern, test.id)
		}
	}
}
