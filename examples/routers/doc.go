// Package routers shows how to mount the library with routers other than net/http's: chi,
// gin and echo. Each file is a function to copy: the API, a route of the host's own that is
// guarded by it, and the settings pages.
//
//	go test .   # the same requests, through each of them
//
// What they have in common: the API goes under its own prefix as it is, without one being
// stripped; whatever is not the host's there gets to it, so that unknown paths and methods are
// answered in the API's form; and what the guard found out is in the request's context.
// CORS middleware goes around the whole router: a preflight request then meets no route.
package routers
