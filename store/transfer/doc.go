// Package transfer moves the data of one [store.Store] into another. It defines the records that
// every store can export and import.
//
//	_, err := transfer.Copy(ctx, target, source, transfer.CopyOptions{})
//
// # Records
//
// A record has a kind and contains everything that belongs to it. For example, a [Key] contains its
// hashes, its previous value and its uses; a [Webhook] contains its secrets; an [Event] contains
// its body and its deliveries with their attempts. Records hold signing secrets in plain text and
// hashes of keys, so protect them like the store. Times are copied from the source, but a pending
// delivery has a remaining wait instead of a due time, because clocks differ.
//
// # Moving
//
// During an export nothing else may write to the source, and during an import nothing else may use
// the imported accounts in the target. To compare both sides, use [Summarize], which returns counts
// and checksums of a store's records.
//
// [store.Store]: https://pkg.go.dev/github.com/storageapi/storageapi/store#Store
package transfer
