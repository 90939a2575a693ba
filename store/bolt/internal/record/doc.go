// Package record encodes and decodes the records of a bolt store's file: keys, webhooks, events,
// attempts and the rest. It defines their bytes, but does not depend on bbolt or know the buckets
// of the records.
//
// Every record begins with [Version]. New fields are appended: the decoder treats missing fields as
// zero and ignores unknown ones. For a record that it cannot decode it returns [ErrCorrupt]; it
// never panics.
package record
