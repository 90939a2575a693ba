package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/memory"
)

const newKey = `{"name":"a","scopes":["files:read"]}`

// checkLocation creates a key at prefix and follows its Location.
func (h *host) checkLocation(prefix string, changes ...func(*http.Request)) {
	h.Helper()
	admin := h.admin(alice)
	made := h.do("POST", prefix+keysPath, admin, newKey, changes...).want(201, "")
	location := made.header.Get("Location")
	if want := prefix + keysPath + "/" + made.text("id"); location != want {
		h.Errorf("got Location %q, want %q", location, want)
	}
	h.do("GET", location, admin, "").want(200, "")
}

func TestMountUnderServeMux(t *testing.T) {
	api := newAPI(t, newClock().config())
	mux := http.NewServeMux()
	mux.Handle("/v2/", api)
	mux.Handle("GET /v2/environments", api.Auth.Require(scopes.EnvironmentsRead, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		_, _ = w.Write([]byte("[]\n"))
	})))
	h := mount(t, api, mux)
	h.checkLocation("")

	_, token := h.key(alice, scopes.EnvironmentsRead)
	h.do("GET", "/v2/environments", token, "").want(200, "")
	h.do("GET", "/v2/environments", "", "").want(401, "UNAUTHORIZED")
	h.do("GET", "/v2/files", token, "").want(404, "NOT_FOUND")
	h.do("GET", "/v2/", token, "").want(404, "NOT_FOUND")
	h.do("GET", "/v2/files", "", "").want(401, "UNAUTHORIZED")
	h.do("GET", keysPath+"/", token, "").want(404, "NOT_FOUND")
	h.do("PUT", keysPath, token, "").want(405, "METHOD_NOT_ALLOWED")
}

func TestMountUnderPrefix(t *testing.T) {
	api := newAPI(t, newClock().config())
	mux := http.NewServeMux()
	mux.Handle("/storage/v2/", http.StripPrefix("/storage", api))
	mux.Handle("/a%2Fb/v2/", http.StripPrefix("/a/b", api))
	mux.Handle("/outer/", http.StripPrefix("/outer", http.StripPrefix("/inner", api)))
	h := mount(t, api, mux)
	h.checkLocation("/storage")
	h.checkLocation("/outer/inner")
	h.do("GET", keysPath, h.admin(alice), "", func(r *http.Request) { r.URL.Path = "/storage" + keysPath }).want(200, "")

	// A proxy may send the absolute form of the URL.
	made := h.raw("POST http://example.com/storage"+keysPath+"? HTTP/1.1", "Host: example.com", "Connection: close",
		"Api-Key: "+h.admin(alice), "Content-Type: application/json", "Content-Length: 36", "", newKey).want(201, "")
	if got, want := made.header.Get("Location"), "/storage"+keysPath+"/"+made.text("id"); got != want {
		t.Errorf("got Location %q, want %q", got, want)
	}
}

// The API must be served under the configured prefix and nowhere else, even if the host strips
// another prefix.
func TestPrefix(t *testing.T) {
	for _, prefix := range []string{"/api/v1", "/a", "/v2/v2", "/~x/a:b@c;d=e!$&'()*+,-._", "/"} {
		at := strings.TrimSuffix(prefix, "/")
		config := newClock().config()
		config.Prefix = prefix
		api := newAPI(t, config)
		mux := http.NewServeMux()
		mux.Handle(at+"/", api)
		mux.Handle("/outer/", http.StripPrefix("/outer", api))
		mux.Handle("GET "+at+"/openapi.json", api.OpenAPIHandler())
		h := mount(t, api, mux)
		admin := h.admin(alice)
		for _, before := range []string{"", "/outer"} {
			made := h.do("POST", before+at+"/api-keys", admin, newKey).want(201, "")
			location := made.header.Get("Location")
			if want := before + at + "/api-keys/" + made.text("id"); location != want {
				t.Errorf("%s: got Location %q, want %q", prefix, location, want)
			}
			h.do("GET", location, admin, "").want(200, "")

			hook := h.do("POST", before+at+"/notifications/webhooks", admin, `{"url":"https://example.com/","events":["balance.low"]}`).want(201, "")
			job := h.do("POST", hook.header.Get("Location")+"/recoveries", admin, "").want(202, "")
			h.do("GET", job.header.Get("Location"), admin, "").want(200, "")
		}
		h.do("GET", "/outer"+keysPath, admin, "").want(404, "NOT_FOUND")
		h.do("PUT", at+"/api-keys", admin, "").want(405, "METHOD_NOT_ALLOWED")

		paths, _ := h.do("GET", at+"/openapi.json", "", "").want(200, "").object()["paths"].(map[string]any)
		for path := range paths {
			if !strings.HasPrefix(path, at+"/api-keys") && !strings.HasPrefix(path, at+"/notifications/") && path != at+"/audit-log" {
				t.Errorf("%s: documented: %s", prefix, path)
			}
		}
		if len(paths) != 19 {
			t.Errorf("%s: %d paths are documented", prefix, len(paths))
		}
	}
}

func TestPrefix_Invalid_IsRejected(t *testing.T) {
	for _, prefix := range []string{"v2", "/v2/", "//", "//v2", "/a//b", "/a/./b", "/a/../b", "/a/..", "/a b", "/%61", "/{a}", "/ä", "/a?b", "/a#b", `/a"b`, `/a\b`, "/a\x00"} {
		config := storageapi.Config{Store: memory.New(), Prefix: prefix}
		if _, err := storageapi.NewHandler(config); err == nil || !strings.Contains(err.Error(), "Config.Prefix must begin with a slash") {
			t.Errorf("%q: %v", prefix, err)
		}
	}
}

// TestMountWithoutCleaning requests paths that a ServeMux would clean.
func TestMountWithoutCleaning(t *testing.T) {
	h := serve(t, newClock().config())
	h.checkLocation("")
	id, token := h.key(alice, scopes.AccountRead)
	get := func(target string, headers ...string) reply {
		lines := append([]string{"GET " + target + " HTTP/1.1", "Host: x", "Connection: close"}, headers...)
		return h.raw(append(lines, "", "")...)
	}
	key := "Api-Key: " + token
	for _, target := range []string{
		keysPath,
		keysPath + "?",
		keysPath + "?name=/../b",
		keysPath + "/" + id,
		"http://x" + keysPath,
		"http://elsewhere.example" + keysPath + "?limit=1",
		"/v2/api%2dkeys",
	} {
		get(target, key).want(200, "")
		get(target).want(401, "UNAUTHORIZED")
	}
	for _, target := range []string{
		"*",
		"/",
		"//v2/api-keys",
		"///v2/api-keys",
		"/v2//api-keys",
		"/v2/api-keys/",
		"/v2/api-keys//",
		"/v2/api-keys/" + id + "/",
		"/v2/api-keys//" + id,
		"/v2/../v2/api-keys",
		"/v2/./api-keys",
		"/../v2/api-keys",
		"/v2/%2e%2e/v2/api-keys",
		"/v2%2fapi-keys",
		"/v2/api-keys%2f",
		"/v2/api-keys/..",
		"/v2/api-keys/%2e%2e",
		"/v2/api-keys/../api-keys",
		"/V2/api-keys",
		"/v2/Api-Keys",
		"/v2/api-keys;a=b",
		"/v2/api-keys%00",
		"/v2/api-keys%20",
		"http://x",
		"http://x//v2/api-keys",
	} {
		got := get(target, key).want(404, "NOT_FOUND")
		if location := got.header.Get("Location"); location != "" {
			t.Errorf("%s: redirected to %s", target, location)
		}
		get(target).want(401, "UNAUTHORIZED")
	}
}

// TestMountBehindRewriting checks that a Location never leads to another host, even if a router has
// rewritten the path.
func TestMountBehindRewriting(t *testing.T) {
	api := newAPI(t, newClock().config())
	h := mount(t, api, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path, r.URL.RawPath = r.URL.Path[strings.Index(r.URL.Path, "/v2/"):], ""
		api.ServeHTTP(w, r)
	}))
	made := h.raw("POST //evil.example"+keysPath+" HTTP/1.1", "Host: x", "Connection: close",
		"Api-Key: "+h.admin(alice), "Content-Type: application/json", "Content-Length: 36", "", newKey).want(201, "")
	if got, want := made.header.Get("Location"), keysPath+"/"+made.text("id"); got != want {
		t.Errorf("got Location %q, want %q", got, want)
	}
}
