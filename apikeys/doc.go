// Package apikeys issues API keys with scopes and verifies them (docs/spec.md, sections 2.1,
// 4.1 and 5):
//
//	keys, err := apikeys.New(store, apikeys.Config{})
//	key, token, err := keys.Create(ctx, "acct_1", apikeys.CreateParams{Name: "backup", Scopes: scopes.Of(scopes.FilesRead)})
//	principal, err := keys.Verify(ctx, r.Header.Get("Api-Key"))
//
// # Issuing
//
// [KeyService.Create] returns the new key together with its [Token], the value
// that goes into the Api-Key header. The token is shown once: only its SHA-256
// is stored. A host makes the first key of an account here, in Go.
//
// An account may have [Config.MaxPerAccount] keys. CreateParams.IdempotencyKey makes
// it safe to ask for one again.
//
// # Changing
//
// [KeyService.Rotate] gives a key a new token. The previous one stays good for a grace
// period and has a last use of its own, so that its owner sees when no program needs it
// any more. [KeyService.Update] renames a key, [KeyService.Delete] removes it.
//
// The params of each of them, and of Create, have an If: a [Condition], by which authority
// is asked, and by which one of several changes that are based on the same state wins
// (compare-and-swap).
//
// # Listing
//
// [KeyService.List] returns a page, [KeyService.All] iterates over all keys of an account.
//
// # Verifying
//
// [KeyService.Verify] reads the key's record on every call, so a deleted,
// rotated or expired key is dead at once, and never writes. When a key was last
// used is kept in memory and written in the background; [KeyService.Close]
// writes what is left.
//
// # Importing
//
// [KeyService.Import] adds keys of another system, of which there is only a digest; a [Legacy]
// says what their values look like. docs/migration.md is a guide.
//
// # Storage
//
// A [Store] is what a backend implements; package storetest holds the suite
// that every backend passes.
package apikeys
