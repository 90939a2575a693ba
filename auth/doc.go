// Package auth authenticates requests by their Api-Key header and guards
// handlers, the library's own and the host's alike (SPEC section 5).
//
// # Guarding a route
//
//	mux.Handle("GET /v2/environments", api.Auth.Require(scopes.EnvironmentsRead, list))
//
// Inside the handler, [PrincipalFrom] tells who is calling. A request without a
// valid key never reaches it: it is answered 401 UNAUTHORIZED, or 403 FORBIDDEN
// where the key is good but lacks the scope.
//
// # When the body takes its time
//
// A request is let through once its header is there. A handler that waits for a body
// asks [Recheck] before it does what the body says: the key may have been deleted, or
// rotated, meanwhile.
//
// # Where the key is looked for
//
// In the Api-Key header and nowhere else: not in the query, not in another
// header, and not where the header is given twice.
//
// # Limiting requests
//
// [Config.RateLimit] limits the requests of each key, and of an account to so many times
// as much, to the library's routes and the host's alike. It is off unless it is set.
//
// # Deciding more than scopes
//
// An [Authorize] function decides what a key may do with other keys and with
// webhooks. [LeastPrivilege] is the default; a host replaces or wraps it.
package auth
