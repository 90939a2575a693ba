package storageapi

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // embeds the document
	"encoding/base64"
	"net/http"
	"time"

	"github.com/storageapi/storageapi/auth"
)

//go:embed openapi.json
var openAPI []byte

// OpenAPI returns the OpenAPI 3.1 document of this Handler, as JSON. It describes every route,
// status, code, header and limit, and the events that webhooks receive, with the prefix, scopes,
// event types, signature header and limits of the [Config]. With the defaults it equals the file
// openapi.json of this package. The caller may modify the result.
func (h *Handler) OpenAPI() []byte { return bytes.Clone(h.document) }

// OpenAPIHandler returns a handler that serves [Handler.OpenAPI] without authentication. It answers
// GET and HEAD at any path. Caches may store the document but must revalidate it by its ETag.
func (h *Handler) OpenAPIHandler() http.Handler {
	sum := sha256.Sum256(h.document)
	tag := `"` + base64.RawURLEncoding.EncodeToString(sum[:16]) + `"`
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			header.Set("Allow", "GET, HEAD")
			auth.WriteError(w, http.StatusMethodNotAllowed, auth.CodeMethodNotAllowed, "This path supports GET, HEAD.")
			return
		}
		header.Set("Content-Type", "application/json; charset=utf-8")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Cache-Control", "no-cache")
		header.Set("ETag", tag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(h.document))
	})
}
