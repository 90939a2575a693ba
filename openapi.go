package storageapi

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the document
	"encoding/base64"
	"net/http"
	"time"

	"github.com/storageapi/storageapi/auth"
)

//go:embed openapi.json
var openAPI []byte

// OpenAPI returns the OpenAPI 3.1 document of the API, as JSON: every route,
// status, code, header and limit, and the events that webhooks receive. It is that of a
// Handler whose [Config] leaves these as they are: [Handler.OpenAPI] is that of any other.
// The copy is the caller's.
func OpenAPI() []byte { return bytes.Clone(openAPI) }

// OpenAPI is [OpenAPI] of this very Handler: its paths begin with [Config.Prefix], and it
// has what Config says of scopes, event types, the name of the signature's header and
// limits. A Handler with nothing of that has the same document, byte for byte. The copy is
// the caller's.
func (h *Handler) OpenAPI() []byte { return bytes.Clone(h.document) }

// OpenAPIHandler returns a handler that serves [OpenAPI] to everybody: GET and
// HEAD, at any path, so that a host mounts it where it likes. Caches may keep
// the document and are to ask whether it has changed, by its ETag.
func OpenAPIHandler() http.Handler { return serveDocument(openAPI) }

// OpenAPIHandler is [OpenAPIHandler] of this very Handler.
func (h *Handler) OpenAPIHandler() http.Handler { return serveDocument(h.document) }

func serveDocument(document []byte) http.Handler {
	sum := sha256.Sum256(document)
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
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(document))
	})
}
