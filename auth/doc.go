// Package auth authenticates requests by their Api-Key header and guards the handlers of the
// library and of the host (docs/spec.md, section 5).
//
//	mux.Handle("GET /v2/environments", api.Auth.Require(scopes.EnvironmentsRead, list))
//
// In a guarded handler, [PrincipalFrom] returns the caller. A request without a valid key never
// reaches the handler: it is answered 401 UNAUTHORIZED. A valid key without the scope is answered
// 403 FORBIDDEN.
//
// # Slow bodies
//
// A request passes the guard as soon as its header has arrived. A handler that waits for the body
// must call [Recheck] before it acts on the body, because the key may have been deleted or rotated
// in the meantime.
//
// # The Api-Key header
//
// The key is accepted only in this header: not in the query, not in another header, and not if the
// header is repeated. With [Config.Bearer], it is also accepted as Authorization: Bearer.
//
// # Rate limits
//
// [Config.RateLimit] limits the requests of each key and of each account, to the routes of both the
// library and the host. It is off by default.
//
// # Authorization beyond scopes
//
// An [Authorize] function grants or refuses each action on keys, webhooks and events.
// [LeastPrivilege] is the default; a host can replace or wrap it.
package auth
