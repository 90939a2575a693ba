package httpapi

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/auth"
)

func TestNewRouter_InvalidRoute_ReturnsError(t *testing.T) {
	good := route{"GET", "/v2/things", auth.ReadKeys, noBody, nil, nil}
	open := route{"GET", "/v2/others", "", noBody, nil, nil}
	tests := []struct {
		name   string
		routes []route
		want   string
	}{
		{"without authority", []route{good, open}, "GET /v2/others declares no authority"},
		{"twice", []route{good, good}, "duplicate route GET /v2/things"},
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

// TestRoutes repeats the route table, so that no route can be changed by accident.
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
		{"GET", "/v2/api-keys/self", "read self"},
		{"DELETE", "/v2/api-keys/self", "revoke self"},
		{"GET", "/v2/api-keys/{id}", "read keys"},
		{"PATCH", "/v2/api-keys/{id}", "update key"},
		{"DELETE", "/v2/api-keys/{id}", "delete key"},
		{"POST", "/v2/api-keys/{id}/rotate", "rotate key"},
		{"GET", "/v2/api-keys/{id}/refusals", "read keys"},
		{"POST", "/v2/notifications/webhooks", "create webhook"},
		{"GET", "/v2/notifications/webhooks", "read webhooks"},
		{"GET", "/v2/notifications/webhooks/{id}", "read webhooks"},
		{"PATCH", "/v2/notifications/webhooks/{id}", "update webhook"},
		{"DELETE", "/v2/notifications/webhooks/{id}", "delete webhook"},
		{"POST", "/v2/notifications/webhooks/{id}/rotate-secret", "update webhook"},
		{"POST", "/v2/notifications/webhooks/{id}/test", "update webhook"},
		{"GET", "/v2/notifications/webhooks/{id}/deliveries", "read webhooks"},
		{"GET", "/v2/notifications/webhooks/{id}/deliveries/{eventId}", "read webhooks"},
		{"GET", "/v2/notifications/webhooks/{id}/deliveries/{eventId}/body", "read events"},
		{"GET", "/v2/notifications/webhooks/{id}/deliveries/{eventId}/explanation", "read events"},
		{"POST", "/v2/notifications/webhooks/{id}/deliveries/{eventId}/redeliver", "update webhook"},
		{"POST", "/v2/notifications/webhooks/{id}/recoveries", "update webhook"},
		{"GET", "/v2/notifications/webhooks/{id}/recoveries/{recoveryId}", "read webhooks"},
		{"GET", "/v2/notifications/events", "read events"},
		{"GET", "/v2/notifications/events/{id}/body", "read events"},
		{"GET", "/v2/audit-log", "read audit"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
	for _, r := range new(api).routes() { // methods other than GET and DELETE must read a body, because the key is verified again after the body
		if takes, reads := r.body != noBody, r.method == "GET" || r.method == "DELETE"; takes == reads {
			t.Errorf("%s %s takes a body: %v", r.method, r.pattern, takes)
		}
	}
	for _, r := range want {
		if leastPrivilegeRefusals("")[r.Action] == "" && r.Action != readSelf && r.Action != revokeSelf {
			t.Errorf("no refusal for %q", r.Action)
		}
	}
}

func TestFind(t *testing.T) {
	all := new(api).routes()
	rt, err := newRouter(all)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		path    string
		pattern string // empty means that no route is found
		place   pathParams
	}{
		{"/v2/api-keys", "/v2/api-keys", pathParams{}},
		{"/v2/api%2Dkeys", "/v2/api-keys", pathParams{}},
		{"/v2/api-keys/key_1", "/v2/api-keys/{id}", pathParams{id: "key_1"}},
		{"/v2/api-keys/a%2Fb", "/v2/api-keys/{id}", pathParams{id: "a/b"}},
		{"/v2/api-keys/%2e%2e", "/v2/api-keys/{id}", pathParams{id: ".."}},
		{"/v2/api-keys/{id}", "/v2/api-keys/{id}", pathParams{id: "{id}"}},
		{"/v2/api-keys/%00", "/v2/api-keys/{id}", pathParams{id: "\x00"}},
		{"/v2/api-keys/key_1/rotate", "/v2/api-keys/{id}/rotate", pathParams{id: "key_1"}},
		{"/v2/notifications/webhooks/wh_1", "/v2/notifications/webhooks/{id}", pathParams{id: "wh_1"}},
		{"/v2/notifications/webhooks/wh_1/rotate-secret", "/v2/notifications/webhooks/{id}/rotate-secret", pathParams{id: "wh_1"}},
		{"/v2/notifications/webhooks/wh_1/deliveries", "/v2/notifications/webhooks/{id}/deliveries", pathParams{id: "wh_1"}},
		{"/v2/notifications/webhooks/wh_1/deliveries/e%2F1", "/v2/notifications/webhooks/{id}/deliveries/{eventId}", pathParams{"wh_1", "e/1"}},
		{"/v2/notifications/webhooks/deliveries/deliveries/deliveries", "/v2/notifications/webhooks/{id}/deliveries/{eventId}", pathParams{"deliveries", "deliveries"}},
		{"/v2/notifications/webhooks/wh_1/deliveries/e/redeliver", "/v2/notifications/webhooks/{id}/deliveries/{eventId}/redeliver", pathParams{"wh_1", "e"}},
		{"/v2/notifications/webhooks/wh_1/recoveries/rec_1", "/v2/notifications/webhooks/{id}/recoveries/{recoveryId}", pathParams{"wh_1", "rec_1"}},
		{"/v2/notifications/webhooks//deliveries", "", pathParams{}},
		{"/v2/notifications/webhooks/wh_1/deliveries/", "", pathParams{}},
		{"/v2/notifications/webhooks/wh_1/deliveries//redeliver", "", pathParams{}},
		{"/v2/notifications/webhooks/wh_1/Deliveries", "", pathParams{}},
		{"/v2/notifications/webhooks/wh_1/deliveries/e/redeliver/", "", pathParams{}},
		{"", "", pathParams{}},
		{"*", "", pathParams{}},
		{"/", "", pathParams{}},
		{"/v2", "", pathParams{}},
		{"/v2/", "", pathParams{}},
		{"/V2/api-keys", "", pathParams{}},
		{"/v2/API-keys", "", pathParams{}},
		{"/v2/api-keys/", "", pathParams{}},
		{"/v2/api-keys//", "", pathParams{}},
		{"/v2/api-keys/key_1/", "", pathParams{}},
		{"/v2/api-keys/key_1/more", "", pathParams{}},
		{"//v2/api-keys", "", pathParams{}},
		{"/v2//api-keys", "", pathParams{}},
		{"/v2/./api-keys", "", pathParams{}},
		{"/v2/../v2/api-keys", "", pathParams{}},
		{"/v2%2Fapi-keys", "", pathParams{}},
		{"/x/v2/api-keys", "", pathParams{}},
		{"/v2/{id}", "", pathParams{}},
	}
	for _, test := range tests {
		path, err := url.PathUnescape(test.path)
		if err != nil {
			t.Fatal(err)
		}
		u := &url.URL{Path: path, RawPath: test.path}
		method := "GET"
		if i := slices.IndexFunc(all, func(r route) bool { return r.pattern == test.pattern }); i >= 0 {
			method = all[i].method
		}
		r, at, err := rt.find(&http.Request{Method: method, URL: u})
		pattern := ""
		if r != nil {
			pattern = r.pattern
		}
		if pattern != test.pattern || at != test.place || (err == nil) != (pattern != "") || err != nil && !errors.Is(err, errNoRoute) {
			t.Errorf("find %q: got pattern %q, %+v, error %v; want %q, %+v", test.path, pattern, at, err, test.pattern, test.place)
		}
	}
}
