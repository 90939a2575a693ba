package storageapi

import "github.com/storageapi/storageapi/auth"

// RequestHeaders returns the names of the request headers that the API reads and that browsers list
// in preflight requests. Pass them to CORS middleware; see examples/routers. With [Config.Bearer],
// pass Authorization as well.
func RequestHeaders() []string {
	return []string{auth.HeaderName, "Content-Type", "Idempotency-Key", "If-Match"}
}

// ResponseHeaders returns the names of the response headers that CORS middleware must expose to
// scripts in browsers.
func ResponseHeaders() []string {
	return []string{"Allow", "ETag", "Location", "Retry-After", "WWW-Authenticate", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"}
}
