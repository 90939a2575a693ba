package storageapi_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/httpapi"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// A document is the part of the OpenAPI document that these tests check. The tests of
// internal/contract compare it with the API, using an independent validator.
type document struct {
	OpenAPI    string
	Paths      map[string]map[string]json.RawMessage
	Webhooks   map[webhooks.EventType]json.RawMessage
	Components struct {
		Schemas struct {
			Scope, EventType struct{ Enum []string }
			Error            struct {
				Properties struct {
					Error struct {
						Properties struct{ Code struct{ Enum []string } }
					}
				}
			}
		}
	}
}

// defaultDocument returns the document of a Handler with the default Config.
func defaultDocument(t *testing.T) []byte {
	t.Helper()
	return newHost(t, storageapi.Config{Store: memory.New()}).OpenAPI()
}

func readDocument(t *testing.T) document {
	t.Helper()
	var d document
	if err := json.Unmarshal(defaultDocument(t), &d); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(d.OpenAPI, "3.1.") {
		t.Fatalf("openapi is %q", d.OpenAPI)
	}
	return d
}

// The test compares the routes in the code with all places that list them.
func TestRoutes_AreDocumentedEverywhere(t *testing.T) {
	want := httpapi.Routes()
	slices.Sort(want)
	check := func(where string, got []string) {
		t.Helper()
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-the code +%s):\n%s", where, where, diff)
		}
	}

	var documented []string
	for path, item := range readDocument(t).Paths {
		for method := range item {
			if method != "parameters" {
				documented = append(documented, strings.ToUpper(method)+" "+path)
			}
		}
	}
	check("openapi.json", documented)

	var commented []string
	for _, route := range found(t, regexp.MustCompile(`(?m)^//\t([A-Z]+) +(\S+)`), "storageapi.go") {
		if method, path, _ := strings.Cut(route, " "); path[0] != '/' { // path is relative to /v2/notifications/webhooks/{id}
			route = method + " /v2/notifications/webhooks/{id}/" + path
		}
		commented = append(commented, route)
	}
	check("storageapi.go", commented)

	var tabulated []string
	for _, route := range found(t, regexp.MustCompile("(?m)^\\| `([A-Z]+) ((?:/v2|…/)[^`?]*)` \\|"), "docs/http.md") {
		tabulated = append(tabulated, strings.Replace(route, "…", "/v2/notifications/webhooks", 1))
	}
	check("docs/http.md", tabulated)
}

// found returns the first two groups of each match in a file, separated by a space.
func found(t *testing.T, pattern *regexp.Regexp, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, match := range pattern.FindAllStringSubmatch(string(text), -1) {
		list = append(list, match[1]+" "+match[2])
	}
	return list
}

// The test compares the document's lists with the lists in the code.
func TestOpenAPI_Lists_MatchTheCode(t *testing.T) {
	d := readDocument(t)
	if diff := cmp.Diff(scopes.Specified().Names(), d.Components.Schemas.Scope.Enum); diff != "" {
		t.Errorf("scopes (-code +document):\n%s", diff)
	}
	var types []string
	for _, eventType := range alerts.EventTypes() {
		types = append(types, string(eventType))
		if d.Webhooks[eventType] == nil {
			t.Errorf("no webhook %s", eventType)
		}
	}
	if diff := cmp.Diff(types, d.Components.Schemas.EventType.Enum); diff != "" {
		t.Errorf("event types (-code +document):\n%s", diff)
	}
	source, err := os.ReadFile("auth/error.go")
	if err != nil {
		t.Fatal(err)
	}
	var codes []string
	for _, match := range regexp.MustCompile(`(?m)^\tCode\w+ += "([A-Z_]+)"`).FindAllStringSubmatch(string(source), -1) {
		codes = append(codes, match[1])
	}
	documented := d.Components.Schemas.Error.Properties.Error.Properties.Code.Enum
	slices.Sort(codes)
	slices.Sort(documented)
	if diff := cmp.Diff(codes, documented); diff != "" {
		t.Errorf("codes (-code +document):\n%s", diff)
	}
}

func TestOpenAPIHandler(t *testing.T) {
	handler := newHost(t, storageapi.Config{Store: memory.New()}).OpenAPIHandler()
	ask := func(method, tag string) *httptest.ResponseRecorder {
		t.Helper()
		r := httptest.NewRequest(method, "/anywhere/openapi.json", nil)
		if tag != "" {
			r.Header.Set("If-None-Match", tag)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	got := ask("GET", "")
	tag := got.Header().Get("ETag")
	if got.Code != 200 || got.Body.String() != string(defaultDocument(t)) || len(tag) != 24 ||
		got.Header().Get("Content-Type") != "application/json; charset=utf-8" || got.Header().Get("Cache-Control") != "no-cache" {
		t.Errorf("GET: %d %v, %d bytes", got.Code, got.Header(), got.Body.Len())
	}
	if got := ask("HEAD", ""); got.Code != 200 || got.Body.Len() != 0 || got.Header().Get("ETag") != tag {
		t.Errorf("HEAD: %d %v, %d bytes", got.Code, got.Header(), got.Body.Len())
	}
	if got := ask("GET", tag); got.Code != 304 || got.Body.Len() != 0 {
		t.Errorf("GET of what is known: %d, %d bytes", got.Code, got.Body.Len())
	}
	if got := ask("GET", `"other"`); got.Code != 200 {
		t.Errorf("GET with another tag: %d", got.Code)
	}
	refused := ask("POST", "").Result()
	body, err := io.ReadAll(refused.Body)
	if err != nil || refused.StatusCode != http.StatusMethodNotAllowed || refused.Header.Get("Allow") != "GET, HEAD" || !strings.Contains(string(body), auth.CodeMethodNotAllowed) {
		t.Errorf("POST: %d %s %v, %v", refused.StatusCode, body, refused.Header, err)
	}
}
