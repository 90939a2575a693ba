// Package scopes holds the permissions that an API key can carry: the thirteen scopes of
// docs/spec.md, section 5, and sets of them.
//
//	granted, err := scopes.ParseSet([]string{"files:write", "files:read"})
//	granted.Has(scopes.FilesRead)                 // true
//	granted.Covers(scopes.Of(scopes.AccountRead)) // false
//
// # Scopes
//
// A [Scope] is one of the thirteen constants; [Parse] turns a name into one and
// refuses everything else. There are no wildcards and no hierarchy:
// "files:write" does not include "files:read".
//
// # Sets
//
// A [Set] is what a key holds. It is a small value, its checks ([Set.Has],
// [Set.Covers]) allocate nothing, and it keeps the order its members were
// given in, so that a response shows a caller's scopes as the caller wrote
// them. An empty set grants nothing.
package scopes
