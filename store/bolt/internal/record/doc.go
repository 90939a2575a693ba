// Package record encodes and decodes the records of a bolt store's file: keys, webhooks,
// events, attempts and the rest. It knows their bytes, and neither bbolt nor in which
// bucket a record stands.
//
// Every record begins with [Version]. What cannot be decoded is [ErrCorrupt]; decoding
// never panics on any bytes.
package record
