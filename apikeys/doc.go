// Package apikeys issues API keys with scopes and verifies them (docs/spec.md, sections 2.1,
// 4.1 and 5):
//
//	keys, err := apikeys.New(store, apikeys.Config{})
//	key, token, err := keys.Create(ctx, "acct_1", apikeys.CreateParams{Name: "backup", Scopes: scopes.Of(scopes.FilesRead)})
//	principal, err := keys.Verify(ctx, r.Header.Get("Api-Key"))
//
// # Issuing
//
// [KeyService.Create] returns the new key together with its [Token], which clients send in the
// Api-Key header. The token is shown only once, because the store keeps only its SHA-256. The host
// creates the first key of an account by calling Create in Go.
//
// An account may have up to [Config.MaxPerAccount] keys. CreateParams.IdempotencyKey makes
// it safe to repeat a creation.
//
// # Changing
//
// [KeyService.Rotate] gives a key a new token. The previous token stays valid for a grace period
// and has its own last-used time, which shows the owner when programs have stopped using it.
// [KeyService.Update] changes a key's name, labels and expiry, and disables or enables it.
// [KeyService.Delete] removes it.
//
// The parameters of these methods and of Create have a field If, a [Condition]. Use it to check the
// caller's authority and for compare-and-swap.
//
// # Listing
//
// [KeyService.List] returns a page of an account's keys, [KeyService.All] iterates over them. Both
// take a [KeyQuery]. [KeyService.AllExpiring] iterates over the keys of all accounts, for operators.
//
// # Verifying
//
// [KeyService.Verify] reads the key's record on every call, so deleting or rotating a key takes
// effect at once. It never writes. Last-used times are kept in memory and written in the
// background; [KeyService.Close] writes the remaining ones.
//
// # Importing
//
// [KeyService.Import] adds keys from another system, given their digests. A [Legacy] describes the
// format of the keys' values. docs/migration.md is a guide.
//
// # Errors
//
// The errors that this service shares with package webhooks are in package apierr.
//
// # Storage
//
// Backends implement [driver.KeyStore]. Package storetest holds the suite that every backend passes.
package apikeys
