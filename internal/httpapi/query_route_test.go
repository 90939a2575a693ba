package httpapi_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/httpapi"
	"github.com/storageapi/storageapi/store/bolt"
)

// A misspelt filter must not list everything, and a change with an unknown parameter must have no
// effect.
func TestRoutes_UnknownQueryParameter_IsRefused(t *testing.T) {
	h := serve(t, storageapi.Config{})
	admin := h.admin(alice)
	for _, route := range httpapi.Routes() {
		method, pattern, _ := strings.Cut(route, " ")
		path := strings.NewReplacer("{id}", "x", "{eventId}", "x", "{recoveryId}", "x").Replace(pattern)
		body := ""
		if method == "POST" || method == "PATCH" {
			body = "{}"
		}
		got := h.do(method, path+"?unused_since=2020-01-01", admin, body).want(400, "VALIDATION_ERROR")
		if !strings.Contains(got.message(), `unknown parameter "unused_since"`) {
			t.Errorf("%s: got the message %q, want it to name unused_since", route, got.message())
		}
	}
	got := h.do("GET", keysPath+"?unused_since=2020-01-01", admin, "").message()
	if want := `query has an unknown parameter "unused_since"; the parameters are name, scope, label, unusedSince, limit, cursor.`; got != want {
		t.Errorf("got the message %q, want %q", got, want)
	}
}

// BenchmarkAuditQuery lists 100 of 10,000 audit entries: with as many parameters as fit into a URL
// (which is refused), with the maximum number of parameters, and with one.
func BenchmarkAuditQuery(b *testing.B) {
	store, err := bolt.Open(filepath.Join(b.TempDir(), "storage.db"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = store.Close() })
	h := serve(b, storageapi.Config{Store: store})
	admin := h.admin(alice)
	var list []audit.Entry
	for i := range 10_000 {
		list = append(list, audit.Entry{ID: fmt.Sprintf("aud_%026d", i), Account: alice, Action: audit.KeyDeleted, Target: audit.Target{Kind: audit.TargetKey, ID: "key"}})
	}
	if _, err := store.AddAuditEntries(b.Context(), list); err != nil {
		b.Fatal(err)
	}
	for parameters, status := range map[int]int{1: http.StatusOK, 200: http.StatusOK, 9_990: http.StatusBadRequest} {
		query := strings.TrimSuffix(strings.Repeat("action=key.created&", parameters), "&")
		b.Run(fmt.Sprint("parameters=", parameters), func(b *testing.B) {
			for b.Loop() {
				h.do("GET", "/v2/audit-log?"+query, admin, "").want(status, map[bool]string{true: "VALIDATION_ERROR"}[status >= 400])
			}
		})
	}
}
