// Package transfer moves what one [store.Store] keeps into another: the records in which a
// store gives out all that it has, and takes it in.
//
//	_, err := transfer.Copy(ctx, target, source, transfer.CopyOptions{})
//
// # Records
//
// A record has a kind, and what belongs to it: a [Key] with its hashes, its previous value
// and its uses, a [Webhook] with its secrets, an [Event] with its body and its deliveries,
// those with their attempts, and so on. Records hold signing secrets in the clear, and
// hashes of keys: treat a stream of them as you treat the store. Times are those of the
// source, except how long pending deliveries wait, which is a duration: clocks differ.
//
// Between two stores of one process records go as they are. [AppendRecord] and
// [ParseRecord] make lines of them and back, in a form that is kept: docs/format.md.
//
// # Moving
//
// While records are exported nothing else writes to the source, and while they are
// imported nothing else uses the target for those accounts. [Summarize] counts what a
// store has, with checksums, so that both sides can be compared.
//
// [store.Store]: https://pkg.go.dev/github.com/storageapi/storageapi/store#Store
package transfer
