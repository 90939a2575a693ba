package auth_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
)

// BenchmarkRequire measures the guard around an empty handler, without the cost of a verifier.
func BenchmarkRequire(b *testing.B) {
	noop := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	guarded := func(limit auth.RateLimit, next http.Handler) http.Handler {
		a, err := auth.New(allKeys, auth.Config{RateLimit: limit})
		if err != nil {
			b.Fatal(err)
		}
		return a.Require(scopes.FilesRead, next)
	}
	for name, handler := range map[string]http.Handler{
		"unguarded": noop, "guarded": guarded(auth.RateLimit{}, noop), "limited": guarded(auth.RateLimit{PerSecond: 1e9}, noop),
		"waiting": guarded(auth.RateLimit{}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { r.Context().Done() })),
	} {
		b.Run(name, func(b *testing.B) {
			w, r := httptest.NewRecorder(), request("reader")
			b.ReportAllocs()
			for b.Loop() {
				handler.ServeHTTP(w, r)
			}
		})
	}
}
