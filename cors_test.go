package storageapi_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/memory"
)

const page = "https://app.example.com"

// TestCORS sends what a browser does: first the question, which carries no key, then the
// request.
func TestCORS(t *testing.T) {
	api, err := storageapi.NewHandler(storageapi.Config{Store: memory.New()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = api.Close() }()
	_, token, err := api.Keys.Create(t.Context(), "acct_1", apikeys.CreateParams{Name: "a", Scopes: scopes.All()})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/v2/", api)
	mux.Handle("GET /v2/environments", api.Auth.Require(scopes.EnvironmentsRead, http.NotFoundHandler()))
	only := storageapi.CORSConfig{Origins: []string{"https://other.example.com:8443", page}, RequestHeaders: []string{"X-Mine"}, ResponseHeaders: []string{"X-Yours"}, MaxAge: time.Hour}
	ask := func(config storageapi.CORSConfig, method, path string, header ...string) *http.Response {
		t.Helper()
		handler, err := storageapi.CORS(config, mux)
		if err != nil {
			t.Fatal(err)
		}
		r, w := httptest.NewRequest(method, path, nil), httptest.NewRecorder()
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		handler.ServeHTTP(w, r)
		return w.Result()
	}
	check := func(what string, response *http.Response, status int, want map[string]string) {
		t.Helper()
		got := make(map[string]string)
		for name, values := range response.Header {
			if strings.HasPrefix(name, "Access-Control-") || name == "Vary" {
				got[name] = strings.Join(values, "; ")
			}
		}
		if diff := cmp.Diff(want, got); diff != "" || response.StatusCode != status {
			t.Errorf("%s: %d, want %d (-want +got):\n%s", what, response.StatusCode, status, diff)
		}
	}
	const methods = "GET, HEAD, POST, PUT, PATCH, DELETE"
	const sent, shown = "Api-Key, Content-Type, Idempotency-Key, If-Match", "Allow, ETag, Location, Retry-After, WWW-Authenticate, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset"
	answered := map[string]string{"Access-Control-Allow-Origin": page, "Access-Control-Expose-Headers": shown + ", X-Yours", "Vary": "Origin"}
	untouched := map[string]string{"Vary": "Origin"}
	for _, path := range []string{"/v2/api-keys", "/v2/environments", "/v2/nothing"} {
		check("the question", ask(only, "OPTIONS", path, "Origin", page, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "api-key,content-type"), 204, map[string]string{
			"Access-Control-Allow-Origin": page, "Access-Control-Allow-Methods": methods, "Access-Control-Allow-Headers": sent + ", X-Mine",
			"Access-Control-Max-Age": "3600", "Vary": "Origin",
		})
	}
	check("a request", ask(only, "GET", "/v2/api-keys", "Origin", page, "Api-Key", token.Reveal()), 200, answered)
	check("without a key", ask(only, "GET", "/v2/api-keys", "Origin", page), 401, answered)
	check("OPTIONS that asks nothing", ask(only, "OPTIONS", "/v2/api-keys", "Origin", page), 401, answered)
	check("no browser", ask(only, "GET", "/v2/api-keys", "Api-Key", token.Reveal()), 200, untouched)
	for _, other := range []string{"https://evil.example", "null", "https://app.example.com.evil.example", "http://app.example.com", "https://other.example.com", page + "/"} {
		check(other, ask(only, "OPTIONS", "/v2/api-keys", "Origin", other, "Access-Control-Request-Method", "POST"), 401, untouched)
		check(other, ask(only, "GET", "/v2/api-keys", "Origin", other, "Api-Key", token.Reveal()), 200, untouched)
	}

	all := storageapi.CORSConfig{Origins: []string{"*"}}
	check("the question of any page", ask(all, "OPTIONS", "/v2/api-keys", "Origin", "null", "Access-Control-Request-Method", "POST"), 204, map[string]string{
		"Access-Control-Allow-Origin": "*", "Access-Control-Allow-Methods": methods, "Access-Control-Allow-Headers": sent, "Access-Control-Max-Age": "600",
	})
	check("a request of any page", ask(all, "GET", "/v2/api-keys", "Origin", page), 401, map[string]string{"Access-Control-Allow-Origin": "*", "Access-Control-Expose-Headers": shown})
}

func TestCORSRefuses(t *testing.T) {
	fine := []string{page}
	for want, config := range map[string]storageapi.CORSConfig{
		"Origins must name":         {},
		"MaxAge":                    {Origins: fine, MaxAge: -1},
		`header: "X Mine"`:          {Origins: fine, RequestHeaders: []string{"X Mine"}},
		`header: "*"`:               {Origins: fine, RequestHeaders: []string{"*"}},
		`header: ""`:                {Origins: fine, ResponseHeaders: []string{""}},
		`alone: "*"`:                {Origins: []string{"*", page}},
		`"app.example.com"`:         {Origins: []string{"app.example.com"}},
		`"https://a.example/"`:      {Origins: []string{page, "https://a.example/"}},
		`"https://a.example:443"`:   {Origins: []string{"https://a.example:443"}},
		`"https://A.example"`:       {Origins: []string{"https://A.example"}},
		`"https://*.example"`:       {Origins: []string{"https://*.example"}},
		`"https://bücher.example"`:  {Origins: []string{"https://bücher.example"}},
		`"https://u@a.example"`:     {Origins: []string{"https://u@a.example"}},
		`"null"`:                    {Origins: []string{"null"}},
		`"https://a.example\r\nX:"`: {Origins: []string{"https://a.example\r\nX:"}},
	} {
		if _, err := storageapi.CORS(config, http.NotFoundHandler()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, err := storageapi.CORS(storageapi.CORSConfig{Origins: fine}, nil); err == nil {
		t.Error("nil is served")
	}
}

// TestHeadersAreListed compares the lists for browsers with the OpenAPI document.
func TestHeadersAreListed(t *testing.T) {
	var document map[string]any
	if err := json.Unmarshal(storageapi.OpenAPI(), &document); err != nil {
		t.Fatal(err)
	}
	sent, answered := []string{"Content-Type"}, []string{"Allow"} // which the document takes for granted
	var walk func(any)
	walk = func(value any) {
		switch value := value.(type) {
		case map[string]any:
			if name, _ := value["name"].(string); value["in"] == "header" {
				sent = append(sent, name)
			}
			if headers, ok := value["headers"].(map[string]any); ok {
				for name := range headers {
					answered = append(answered, name)
				}
			}
			for _, member := range value {
				walk(member)
			}
		case []any:
			for _, member := range value {
				walk(member)
			}
		}
	}
	components, _ := document["components"].(map[string]any)
	walk(document["paths"])
	walk(map[string]any{"responses": components["responses"], "securitySchemes": components["securitySchemes"]})
	for name, parameter := range components["parameters"].(map[string]any) {
		if !strings.HasPrefix(name, "StandardWebhook") && name != "ServiceSignature" {
			walk(parameter)
		}
	}
	check := func(what string, want, got []string) {
		t.Helper()
		slices.Sort(want)
		if diff := cmp.Diff(slices.Compact(want), got); diff != "" {
			t.Errorf("%s (-the document +the code):\n%s", what, diff)
		}
	}
	answered = slices.DeleteFunc(answered, func(name string) bool { return name == "Cache-Control" }) // browsers show it unasked
	check("sent", sent, storageapi.RequestHeaders())
	check("answered", answered, storageapi.ResponseHeaders())
}
