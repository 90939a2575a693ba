package dashboard_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/scopes"
)

// maxWeight is the maximum number of bytes, uncompressed, that a browser may load for the first
// page.
const maxWeight = 64_000

// TestWeight measures a list of 50 keys, most of which have some scopes, together with all its
// assets.
func TestWeight(t *testing.T) {
	s := newSite(t, storageapi.Config{})
	for i := range 50 {
		members := []scopes.Scope{scopes.FilesRead, scopes.FilesWrite, scopes.EnvironmentsRead}[:1+i%3]
		s.key(alice, fmt.Sprintf("A key of usual length %02d", i), time.Now().Add(time.Hour), members...)
	}
	first := s.get("api-keys").want(http.StatusOK)
	whole, parts := len(first.body), fmt.Sprintf("%d of the page", len(first.body))
	for _, match := range links.FindAllStringSubmatch(first.body, -1) {
		to, err := first.at.Parse(match[1])
		if err != nil {
			t.Fatal(err)
		}
		if got := s.do(httptest.NewRequest("GET", to.String(), nil)); got.header.Get("Content-Type") != "text/html; charset=utf-8" {
			whole += len(got.body)
			parts += fmt.Sprintf(", %d of %s", len(got.body), to.Path)
		}
	}
	t.Logf("%d bytes: %s", whole, parts)
	if whole > maxWeight {
		t.Errorf("%d bytes, want at most %d", whole, maxWeight)
	}
}
