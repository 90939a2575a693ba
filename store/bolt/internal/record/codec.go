package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"
)

// Version is the first byte of every record.
const Version = 1

// ErrCorrupt is returned for a record that cannot be decoded. Its text contains no part of the
// record.
var ErrCorrupt = errors.New("stored record is damaged or has an unknown version")

// ErrNewer is an [ErrCorrupt] for a record that a newer version of the library has probably
// written. It also wraps [errors.ErrUnsupported].
var ErrNewer = fmt.Errorf("%w: written by a newer version of the library: %w", ErrCorrupt, errors.ErrUnsupported)

// Empty returns a record without content, for rows that carry no data except their key.
func Empty() []byte { return newEncoder(0) }

type encoder []byte

func newEncoder(size int) encoder { return append(make(encoder, 0, size+1), Version) }

func (e *encoder) byte(b byte)     { *e = append(*e, b) }
func (e *encoder) raw(b []byte)    { *e = append(*e, b...) }
func (e *encoder) uint(n uint64)   { *e = binary.AppendUvarint(*e, n) }
func (e *encoder) int(n int64)     { *e = binary.AppendVarint(*e, n) }
func (e *encoder) string(s string) { e.uint(uint64(len(s))); *e = append(*e, s...) }

// ulidLength is the length of the text of a ULID.
const ulidLength = 26

// id writes an ID. If the ID ends in a ULID, like the IDs that this library makes, id writes 2n+1,
// then the n bytes before the ULID, and then the 16 bytes of the ULID. This takes 10 bytes less
// than a string. For any other ID, of n bytes, it writes 2n, and then the ID.
func (e *encoder) id(s string) {
	prefix := s[:max(len(s)-ulidLength, 0)]
	u, ok := parseULID(s[len(prefix):])
	if !ok {
		e.uint(2 * uint64(len(s)))
		*e = append(*e, s...)
		return
	}
	e.uint(2*uint64(len(prefix)) + 1)
	*e = append(append(*e, prefix...), u[:]...)
}

// parseULID parses the text of a ULID in upper case.
func parseULID(text string) (u ulid.ULID, ok bool) {
	u, err := ulid.ParseStrict(text)
	return u, err == nil && u.String() == text // the parser also accepts lower case
}

func (e *encoder) bool(b bool) {
	if b {
		e.byte(1)
	} else {
		e.byte(0)
	}
}

// time writes a time in milliseconds; the zero time stays zero.
func (e *encoder) time(t time.Time) {
	e.bool(!t.IsZero())
	if !t.IsZero() {
		e.int(t.UnixMilli())
	}
}

// A decoder reads a record. After the first missing value it returns zeros, and failed is set.
type decoder struct {
	rest   []byte
	text   string // the whole record, if decoded strings are to share its memory
	failed bool
	newer  bool // decoding failed because a newer version has written the record
}

// newDecoder returns a decoder for a record of the current version.
func newDecoder(record []byte) *decoder {
	d := &decoder{rest: record}
	if version := d.byte(); version != Version {
		d.failed, d.newer = true, version > Version
	}
	return d
}

func (d *decoder) err() error {
	switch {
	case d.failed && d.newer:
		return ErrNewer
	case d.failed:
		return ErrCorrupt
	}
	return nil
}

func (d *decoder) raw(n uint64) []byte {
	if n > uint64(len(d.rest)) {
		d.failed, d.rest = true, nil
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) byte() byte {
	if b := d.raw(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) uint() uint64 {
	n, size := binary.Uvarint(d.rest)
	d.raw(uint64(max(size, 0)))
	d.failed = d.failed || size <= 0
	return n
}

func (d *decoder) int() int64 {
	n, size := binary.Varint(d.rest)
	d.raw(uint64(max(size, 0)))
	d.failed = d.failed || size <= 0
	return n
}

func (d *decoder) id() string {
	n := d.uint()
	s := string(d.raw(n / 2))
	if n%2 == 0 {
		return s
	}
	var u ulid.ULID
	copy(u[:], d.raw(uint64(len(u))))
	return s + u.String()
}

func (d *decoder) bool() bool { return d.byte() == 1 }

func (d *decoder) string() string {
	b := d.raw(d.uint())
	if d.text == "" {
		return string(b)
	}
	end := len(d.text) - len(d.rest)
	return d.text[end-len(b) : end]
}

func (d *decoder) time() time.Time {
	if !d.bool() {
		return time.Time{}
	}
	return time.UnixMilli(d.int()).UTC()
}

// Prefixed returns a key that consists of the length of head, then head, then tail. head is an
// account or an ID.
func Prefixed(head, tail string) []byte {
	return AppendPrefixed(make([]byte, 0, binary.MaxVarintLen32+len(head)+len(tail)), head, tail)
}

// AppendPrefixed appends the result of Prefixed to key.
func AppendPrefixed(key []byte, head, tail string) []byte {
	key = binary.AppendUvarint(key, uint64(len(head)))
	return append(append(key, head...), tail...)
}

// CutPrefixed splits a key made by Prefixed.
func CutPrefixed(key []byte) (head, tail string) {
	d := decoder{rest: key}
	head = d.string()
	return head, string(d.rest)
}

// NumberKey returns the key of the event, delivery or segment n.
func NumberKey(n uint64) []byte { return binary.BigEndian.AppendUint64(make([]byte, 0, 8), n) }

// Number decodes a number of 8 bytes. It returns 0 for other lengths.
func Number(b []byte) uint64 {
	if len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

// Round returns a time as decoding returns it: in UTC, truncated to milliseconds.
func Round(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// noTime represents the zero time in fixed-size records, which otherwise hold Unix milliseconds.
const noTime = 1 << 63

func fixedTime(t time.Time) uint64 {
	if t.IsZero() {
		return noTime
	}
	return uint64(t.UnixMilli())
}

func timeOf(fixed uint64) time.Time {
	if fixed == noTime {
		return time.Time{}
	}
	return time.UnixMilli(int64(fixed)).UTC()
}
