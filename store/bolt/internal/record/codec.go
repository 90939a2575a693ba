package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// Version is the first byte of every record.
const Version = 1

// ErrCorrupt is returned for a record that cannot be decoded. It holds nothing of the
// record.
var ErrCorrupt = errors.New("a stored record is damaged or of an unknown version")

// ErrNewer is ErrCorrupt for a record that a newer version of the library wrote, as far as one can tell. It
// wraps [errors.ErrUnsupported], too.
var ErrNewer = fmt.Errorf("%w: a newer version of the library has written it: %w", ErrCorrupt, errors.ErrUnsupported)

// Empty returns a record that holds nothing: that it is there says it all.
func Empty() []byte { return newEncoder(0) }

// An encoder builds a record.
type encoder []byte

func newEncoder(size int) encoder { return append(make(encoder, 0, size+1), Version) }

func (e *encoder) byte(b byte)     { *e = append(*e, b) }
func (e *encoder) raw(b []byte)    { *e = append(*e, b...) }
func (e *encoder) uint(n uint64)   { *e = binary.AppendUvarint(*e, n) }
func (e *encoder) int(n int64)     { *e = binary.AppendVarint(*e, n) }
func (e *encoder) string(s string) { e.uint(uint64(len(s))); *e = append(*e, s...) }

func (e *encoder) bool(b bool) {
	if b {
		e.byte(1)
	} else {
		e.byte(0)
	}
}

// time writes milliseconds, and the zero time as itself.
func (e *encoder) time(t time.Time) {
	e.bool(!t.IsZero())
	if !t.IsZero() {
		e.int(t.UnixMilli())
	}
}

// A decoder reads a record; after the first thing that is not there it reads
// zeros, and failed is set.
type decoder struct {
	rest   []byte
	failed bool
	newer  bool // it failed because a newer version has written the record
}

// newDecoder begins to read a record of the current version.
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

func (d *decoder) bool() bool     { return d.byte() == 1 }
func (d *decoder) string() string { return string(d.raw(d.uint())) }

func (d *decoder) time() time.Time {
	if !d.bool() {
		return time.Time{}
	}
	return time.UnixMilli(d.int()).UTC()
}

// Prefixed returns head preceded by its length, and tail: a key that begins with an
// account or an id that more follows.
func Prefixed(head, tail string) []byte {
	return AppendPrefixed(make([]byte, 0, binary.MaxVarintLen32+len(head)+len(tail)), head, tail)
}

// AppendPrefixed appends what Prefixed returns.
func AppendPrefixed(key []byte, head, tail string) []byte {
	key = binary.AppendUvarint(key, uint64(len(head)))
	return append(append(key, head...), tail...)
}

// CutPrefixed returns the head and the tail of a key that Prefixed made.
func CutPrefixed(key []byte) (head, tail string) {
	d := decoder{rest: key}
	head = d.string()
	return head, string(d.rest)
}

// NumberKey returns the key of an event, a delivery or a segment.
func NumberKey(n uint64) []byte { return binary.BigEndian.AppendUint64(make([]byte, 0, 8), n) }

// Round returns a time as it is decoded again: in UTC, to the millisecond.
func Round(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// noTime stands for the zero time in records of a fixed size, which have Unix milliseconds.
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
