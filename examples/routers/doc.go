// Package routers shows how to mount the library with routers other than net/http's: chi,
// gin and echo. Each file has a function to copy, which mounts the API, a guarded route of
// the host, and the settings pages.
//
//	go test .   # sends the same requests through each router
//
// Each router mounts the API under the API's prefix, without stripping the prefix. The API also
// receives all other requests under that prefix, and answers unknown paths and methods in its own
// format. The guard puts the principal into the request's context. CORS middleware wraps the whole
// router, so that preflight requests reach no route.
package routers
