// Package transfer moves the data of one [store.Store] into another. It defines the records that
// every store can export and import.
//
//	_, err := transfer.Copy(ctx, target, source, transfer.CopyOptions{})
//
// # Records
//
// A record has a kind and contains everything that belongs to it: a [Key] has its hashes, its
// previous value and its uses; a [Webhook] its secrets; an [Event] its body and its deliveries with
// their attempts; and so on. Records hold signing secrets in plain text and hashes of keys: protect
// a stream of them like the store. Times are copied from the source, except that pending deliveries
// have a remaining wait, because clocks differ.
//
// Within a process, records move between stores as Go values. [AppendRecord] and [ParseRecord]
// convert them to and from lines in a stable format: docs/format.md.
//
// # Moving
//
// During an export nothing else may write to the source, and during an import nothing else may use
// the imported accounts in the target. [Summarize] returns counts and checksums of a store's
// records, to compare both sides.
//
// [store.Store]: https://pkg.go.dev/github.com/storageapi/storageapi/store#Store
package transfer
