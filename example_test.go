package storageapi_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/memory"
)

// A host mounts the API next to its own route and creates the first key in Go. Clients then use the
// API over HTTP.
func Example() {
	dir, err := os.MkdirTemp("", "storageapi")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	api, err := storageapi.NewHandler(storageapi.Config{Path: filepath.Join(dir, "storage.db")})
	if err != nil {
		log.Panic(err)
	}
	defer api.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go api.Run(ctx) // delivers webhooks

	listEnvironments := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, _ := auth.PrincipalFrom(r.Context())
		fmt.Fprintf(w, `{"environments":["production of %s"]}`, caller.Account)
	})
	mux := http.NewServeMux()
	mux.Handle("/v2/", api)
	mux.Handle("GET /v2/environments", api.Auth.Require(scopes.EnvironmentsRead, listEnvironments))
	server := httptest.NewServer(mux)
	defer server.Close()

	_, first, err := api.Keys.Create(ctx, "acct_1", apikeys.CreateParams{Name: "bootstrap", Scopes: scopes.Specified()})
	if err != nil {
		log.Panic(err)
	}
	call := func(method, path, key, body string) {
		request, err := http.NewRequestWithContext(ctx, method, server.URL+path, strings.NewReader(body))
		if err != nil {
			log.Panic(err)
		}
		request.Header.Set("Api-Key", key)
		request.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			log.Panic(err)
		}
		response.Body.Close()
		fmt.Println(method, path, response.Status)
	}
	call("GET", "/v2/environments", first.Reveal(), "")
	call("GET", "/v2/environments", "not a key", "")
	call("POST", "/v2/api-keys", first.Reveal(), `{"name":"CI","scopes":["files:write"],"expiresAt":"2099-12-31"}`)
	call("POST", "/v2/notifications/webhooks", first.Reveal(), `{"url":"https://example.com/hook","events":["files.expiring"]}`)
	call("GET", "/v2/files", first.Reveal(), "")

	// Output:
	// GET /v2/environments 200 OK
	// GET /v2/environments 401 Unauthorized
	// POST /v2/api-keys 201 Created
	// POST /v2/notifications/webhooks 201 Created
	// GET /v2/files 404 Not Found
}

// Before Run is called, the process is not ready, but a restart would not help.
func ExampleHandler_HealthHandler() {
	api, err := storageapi.NewHandler(storageapi.Config{Store: memory.New()})
	if err != nil {
		log.Fatal(err)
	}
	defer api.Close()
	for _, probe := range []http.Handler{api.HealthHandler(storageapi.HealthThresholds{}), api.LivenessHandler(storageapi.HealthThresholds{})} {
		w := httptest.NewRecorder()
		probe.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		verdict, _, _ := strings.Cut(w.Body.String(), `,"run"`)
		fmt.Println(w.Code, verdict)
	}
	// Output:
	// 503 {"ready":false,"live":true,"problems":["run_not_under_way"]
	// 200 {"ready":false,"live":true,"problems":["run_not_under_way"]
}
