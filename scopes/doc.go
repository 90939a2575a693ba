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
// A [Vocabulary] contains all valid scopes of a handler; there is no global registry.
// [Vocabulary.Parse] rejects all other names. A host without some areas of the specification hides
// their scopes ([Vocabulary.Hide]).
//
// # Sets
//
// A [Set] holds the scopes of a key. It is a small value whose checks ([Set.Has], [Set.Covers])
// allocate nothing. It keeps the order of its members, so that a response lists scopes in the
// caller's order. An empty set grants nothing.
//
// Stores save declared scopes by name, so the order of declarations does not matter. A scope that
// is no longer declared stays in the keys that hold it, as [Set.Unknown]. It grants nothing, but
// still counts when one key manages another.
package scopes
