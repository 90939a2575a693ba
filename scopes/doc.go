// Package scopes holds the permissions that an API key can carry: the thirteen scopes of
// docs/spec.md, section 5, those that a host declares in addition, and sets of them.
//
//	granted, err := scopes.ParseSet([]string{"files:write", "files:read"})
//	granted.Has(scopes.FilesRead)                 // true
//	granted.Covers(scopes.Of(scopes.AccountRead)) // false
//
// # Scopes
//
// A [Scope] is a name. There are no wildcards and no hierarchy: "files:write" does not
// include "files:read".
//
// # Vocabularies
//
// A [Vocabulary] is the scopes that there are. Each handler has its own; nothing is
// registered globally. Its [Vocabulary.Parse] refuses every name that it has not.
//
// # Sets
//
// A [Set] is what a key holds. It is a small value, its checks ([Set.Has],
// [Set.Covers]) allocate nothing, and it keeps the order its members were
// given in, so that a response shows a caller's scopes as the caller wrote
// them. An empty set grants nothing.
//
// Stores keep names, so that the order of declarations decides about no key. A scope that
// is not declared any more stays in the keys that hold it, as [Set.Unknown]: it grants
// nothing, and counts where one key manages another.
package scopes
