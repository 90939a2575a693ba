// Package auth authenticates requests by their Api-Key header and guards
// handlers, the library's own and the host's alike (docs/spec.md, section 5).
//
//	mux.Handle("GET /v2/environments", api.Auth.Require(scopes.EnvironmentsRead, list))
//
// Inside the handler, [PrincipalFrom] returns the caller. A request without a valid key
// never reaches the handler: it is answered 401 UNAUTHORIZED. If the key is valid but
// lacks the scope, it is answered 403 FORBIDDEN.
//
// # Slow bodies
//
// A request is let through as soon as its header has arrived. A handler that then waits
// for the body calls [Recheck] before it acts on it, because the key may have been
// deleted or rotated in the meantime.
//
// # The Api-Key header
//
// The key is accepted in this header only: not in the query, not in another header, and
// not if the header is given twice.
//
// # Rate limits
//
// [Config.RateLimit] limits the requests of each key and of each account, to the
// library's routes and the host's alike. It is off unless it is set.
//
// # Authorization beyond scopes
//
// An [Authorize] function decides what a key may do with other keys and with webhooks.
// [LeastPrivilege] is the default; a host can replace or wrap it.
package auth
