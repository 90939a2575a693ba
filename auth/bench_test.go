package auth_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
)

// What the guard adds to a handler that does nothing, without the verifier.
func BenchmarkRequire(b *testing.B) {
	noop := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	guarded := auth.New(allKeys, nil).Require(scopes.FilesRead, noop)
	for name, handler := range map[string]http.Handler{"guarded": guarded, "unguarded": noop} {
		b.Run(name, func(b *testing.B) {
			w, r := httptest.NewRecorder(), request("reader")
			b.ReportAllocs()
			for b.Loop() {
				handler.ServeHTTP(w, r)
			}
		})
	}
}
