// Package record encodes and decodes the records of a bolt store's file: keys, webhooks,
// events, attempts and the rest. It knows their bytes, and neither bbolt nor in which
// bucket a record stands.
//
// Every record begins with [Version]. A field that is added to one follows at its end: what is
// missing there is zero, and what follows there is ignored. What cannot be decoded is
// [ErrCorrupt]; decoding never panics on any bytes.
package record
