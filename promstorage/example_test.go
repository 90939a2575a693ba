package promstorage_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/promstorage"
	"github.com/storageapi/storageapi/scopes"
)

// A host serves the metrics of its Handler, which Prometheus scrapes.
func Example() {
	dir, err := os.MkdirTemp("", "promstorage")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	metrics := promstorage.New()
	api, err := storageapi.NewHandler(storageapi.Config{Path: filepath.Join(dir, "storage.db"), Observe: metrics.Observer()})
	if err != nil {
		log.Panic(err)
	}
	defer api.Close()
	metrics.SetStats(api.Webhooks.Stats)
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)

	mux := http.NewServeMux()
	mux.Handle("/v2/", api)
	private := http.NewServeMux() // on an address that only Prometheus reaches
	private.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))

	_, key, err := api.Keys.Create(context.Background(), "acct_1", apikeys.CreateParams{Name: "CI", Scopes: scopes.Of(scopes.AccountRead)})
	if err != nil {
		log.Panic(err)
	}
	for _, value := range []string{key.Reveal(), key.Reveal(), "not a key"} {
		request := httptest.NewRequest(http.MethodGet, "/v2/api-keys/self", http.NoBody)
		request.Header.Set("Api-Key", value)
		mux.ServeHTTP(httptest.NewRecorder(), request)
	}

	answer := httptest.NewRecorder()
	private.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	for line := range strings.Lines(answer.Body.String()) {
		if strings.HasPrefix(line, "storageapi_authentication_duration_seconds_count") && !strings.HasSuffix(line, " 0\n") || strings.HasPrefix(line, "storageapi_deliveries_pending") {
			fmt.Print(line)
		}
	}

	// Output:
	// storageapi_authentication_duration_seconds_count{outcome="malformed"} 1
	// storageapi_authentication_duration_seconds_count{outcome="ok"} 2
	// storageapi_deliveries_pending 0
}
