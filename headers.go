package storageapi

import "github.com/storageapi/storageapi/auth"

// RequestHeaders returns the names of the request headers that the API reads and that a browser
// asks for in a preflight request: for CORS middleware, see examples/routers.
func RequestHeaders() []string {
	return []string{auth.HeaderName, "Content-Type", "Idempotency-Key", "If-Match"}
}

// ResponseHeaders returns the names of the response headers that a program in a browser can
// read only if CORS middleware exposes them.
func ResponseHeaders() []string {
	return []string{"Allow", "ETag", "Location", "Retry-After", "WWW-Authenticate", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"}
}
