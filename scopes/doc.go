// Package scopes defines the permissions of API keys: the thirteen scopes in section 5 of
// docs/spec.md, scopes declared by a host, and sets of scopes.
//
//	vocabulary, err := scopes.NewVocabulary()
//	granted, err := vocabulary.ParseSet([]string{"files:write", "files:read"})
//	granted.Has(scopes.FilesRead)                 // true
//	granted.Covers(scopes.Of(scopes.AccountRead)) // false
//
// # Scopes
//
// A [Scope] is a name. There are no wildcards and no hierarchy: "files:write" does not include
// "files:read".
//
// # Vocabularies
//
// A [Vocabulary] contains all scopes that are valid for a handler; there is no global registry.
// [Vocabulary.Parse] rejects all other names. A host that lacks some areas of the specification
// hides their scopes with [Vocabulary.Hide].
//
// # Sets
//
// A [Set] holds the scopes of a key. It is a small value, and its checks ([Set.Has], [Set.Covers])
// allocate nothing. It keeps the order of its members, so that a response lists scopes in the order
// in which the caller gave them. An empty set grants nothing.
//
// Stores save declared scopes by name, so the order of declarations does not matter. If a scope is
// no longer declared, keys that hold it keep it in [Set.Unknown]. There it grants nothing, but a
// key that lacks it cannot manage a key that has it.
package scopes
