package routers

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/dashboard"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/memory"
)

// TestRouters sends the same requests through each router. The API and the host's own route must
// respond regardless of the router.
func TestRouters(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	for name, mount := range map[string]func(*storageapi.Handler, http.Handler) http.Handler{"chi": Chi, "gin": Gin, "echo": Echo} {
		t.Run(name, func(t *testing.T) { checkRouter(t, mount) })
	}
}

func checkRouter(t *testing.T, mount func(*storageapi.Handler, http.Handler) http.Handler) {
	// Errors from the router's ResponseWriter are logged.
	var logged strings.Builder
	api, err := storageapi.NewHandler(storageapi.Config{Store: memory.New(), Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := api.Close(); err != nil || logged.Len() > 0 {
			t.Errorf("%v, logged: %s", err, &logged)
		}
	}()
	settings, err := dashboard.New(dashboard.Config{API: api, Account: func(r *http.Request) (string, error) {
		if r.Header.Get("Cookie") == "" {
			return "", errors.New("not signed in")
		}
		return "acct_1", nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	root, err := CORS(mount(api, settings), "https://app.example.com")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(root)
	defer server.Close()
	_, admin, err := api.Keys.Create(t.Context(), "acct_1", apikeys.CreateParams{Name: "admin", Scopes: scopes.Specified()})
	if err != nil {
		t.Fatal(err)
	}
	_, narrow, err := api.Keys.Create(t.Context(), "acct_1", apikeys.CreateParams{Name: "narrow", Scopes: scopes.Of(scopes.FilesRead)})
	if err != nil {
		t.Fatal(err)
	}

	call := func(method, path, body string, header ...string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		response, err := http.DefaultTransport.RoundTrip(r) // does not follow redirects
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		response.Body = io.NopCloser(strings.NewReader(string(data)))
		return response
	}
	want := func(response *http.Response, status int, says string) {
		t.Helper()
		body, _ := io.ReadAll(response.Body)
		if response.StatusCode != status || !strings.Contains(string(body), says) {
			t.Errorf("%s %s: %d %s, want %d %s", response.Request.Method, response.Request.URL.Path, response.StatusCode, body, status, says)
		}
	}
	key, refused := []string{"Api-Key", admin.Reveal()}, []string{"Api-Key", narrow.Reveal()}

	made := call("POST", "/v2/api-keys", `{"name":"CI","scopes":["files:read"]}`, key...)
	want(made, 201, `"name":"CI"`)
	location := made.Header.Get("Location")
	if !strings.HasPrefix(location, "/v2/api-keys/key_") {
		t.Errorf("Location: %q", location)
	}
	want(call("GET", location, "", key...), 200, `"name":"CI"`)
	want(call("HEAD", location, "", key...), 200, "")
	want(call("DELETE", location, "", key...), 204, "")
	want(call("GET", location, "", key...), 404, "NOT_FOUND")
	want(call("GET", "/v2/api-keys?limit=1", "", key...), 200, `"hasMore":true`)
	want(call("POST", "/v2/api-keys", "{}", key...), 400, "VALIDATION_ERROR")

	// The API must answer paths that a router would clean or redirect.
	want(call("GET", "/v2/api-keys/", "", key...), 404, "NOT_FOUND")
	want(call("GET", "/v2//api-keys", "", key...), 404, "NOT_FOUND")
	want(call("GET", "/v2/api%2Dkeys", "", key...), 200, `"data"`)
	want(call("GET", "/v2/api-keys/a%2Fb", "", key...), 404, "There is no API key with this id.")

	// The host's own route.
	want(call("GET", "/v2/environments/env_1", "", key...), 200, `{"account":"acct_1","id":"env_1"}`)
	want(call("GET", "/v2/environments/env_1", ""), 401, "UNAUTHORIZED")
	want(call("GET", "/v2/environments/env_1", "", refused...), 403, "environments:read")

	// Neither the API nor the host has this path.
	want(call("GET", "/v2/files", "", key...), 404, "NOT_FOUND")
	want(call("GET", "/v2/files", ""), 401, "UNAUTHORIZED")
	want(call("PUT", "/v2/api-keys", "", key...), 405, "METHOD_NOT_ALLOWED")
	want(call("POST", "/v2/environments/env_1", "", key...), 404, "NOT_FOUND")

	// The settings pages.
	want(call("GET", "/settings/api-keys", "", "Cookie", "session=1"), 200, "narrow")
	want(call("GET", "/settings/", "", "Cookie", "session=1"), 303, "")
	want(call("GET", "/settings/api-keys", ""), 403, "sign in")

	// A browser sends a preflight request first, and shows only exposed headers to the program.
	const origin = "https://app.example.com"
	for _, path := range []string{"/v2/api-keys", "/v2/environments/env_1"} {
		asked := call("OPTIONS", path, "", "Origin", origin, "Access-Control-Request-Method", "PATCH", "Access-Control-Request-Headers", "api-key,content-type,idempotency-key,if-match")
		want(asked, 204, "")
		if got := asked.Header.Get("Access-Control-Allow-Origin"); got != origin {
			t.Errorf("preflight of %s: allowed origin %q, want %q", path, got, origin)
		}
	}
	if other := call("OPTIONS", "/v2/api-keys", "", "Origin", "https://evil.example", "Access-Control-Request-Method", "GET"); other.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Error("another origin may call")
	}
	read := call("GET", "/v2/api-keys", "", append([]string{"Origin", origin}, key...)...)
	want(read, 200, `"data"`)
	if got := read.Header.Get("Access-Control-Expose-Headers"); !strings.Contains(strings.ToLower(got), "etag") {
		t.Errorf("exposed headers %q, want ETag among them", got)
	}
}
