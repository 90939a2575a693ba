package eventlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// latest caches the rows that a View read last. Deliveries are loaded in the order of their
// numbers, so the next one often needs the same rows.
type latest struct {
	fresh, pending, bodies *bbolt.Cursor

	// The row of schema.Fresh read last.
	bits     record.Bitmap
	bitsLast uint64

	packed     record.Pack // bodies of a segment; empty if unreadable
	packedLast uint64      // the segment's last number

	// The event read last. Its number and its deliveries' numbers are in [first, after).
	first, after uint64
	event        record.Event
	err          error
}

// Pending returns the pending state of a delivery, and whether it is pending. The zero Pending
// means that the delivery has been pending since its publication, without an attempt.
func (v *View) Pending(d driver.DeliveryRef, now time.Time) (p record.Pending, pending bool) {
	if segment, err := v.segments.At(d.Number); err == nil {
		if webhook, err := segment.Recipient(d.Number); err != nil || string(webhook) != d.WebhookID {
			return p, false
		}
	} else if errors.Is(err, errNoSegment) {
		return p, false
	}
	l := &v.latest
	if l.fresh == nil {
		l.fresh, l.pending = v.tx.Bucket(schema.Fresh).Cursor(), v.tx.Bucket(schema.Pending).Cursor()
	}
	if d.Number < l.bits.First || d.Number > l.bitsLast || l.bitsLast == 0 {
		l.bitsLast = 0
		if key, value := l.fresh.Seek(record.NumberKey(d.Number)); len(key) == 8 {
			if m, err := record.DecodeBitmap(value); err == nil {
				l.bits, l.bitsLast = m, binary.BigEndian.Uint64(key)
			}
		}
	}
	if l.bitsLast > 0 && l.bits.Has(d.Number) {
		return p, true
	}
	value := get(l.pending, record.NumberKey(d.Number))
	if value == nil {
		return p, false
	}
	return decodePending(value, now, v.log.options.Clock.Steady(now)), true
}

// EventOf returns the event of the delivery with that number, including the body. For consecutive
// deliveries of an event, it reads the event only once.
func (v *View) EventOf(number uint64) (*record.Event, error) {
	l := &v.latest
	if number >= l.first && number < l.after {
		return &l.event, l.err
	}
	// These values remain if reading panics.
	l.first, l.after, l.event, l.err = 0, 0, record.Event{}, record.ErrCorrupt
	segment, err := v.segments.At(number)
	if err != nil {
		l.err = err
		return &l.event, l.err
	}
	if segment.Last != l.packedLast {
		if l.bodies == nil {
			l.bodies = v.tx.Bucket(schema.Events).Cursor()
		}
		l.packed, l.packedLast = record.Pack{}, segment.Last
		l.packed, _ = record.DecodePack(get(l.bodies, bodiesKey(segment.Key)))
	}
	i := segment.Index(number)
	l.event, l.err = segment.Event(i)
	body := l.packed.At(i)
	if body == nil {
		l.err = record.ErrCorrupt
	}
	l.event.Body = bytes.Clone(body)
	l.first, l.after = segment.Number(i), segment.End(i)
	return &l.event, l.err
}

// get is like [bbolt.Bucket.Get], but reuses a cursor.
func get(c *bbolt.Cursor, key []byte) []byte {
	if k, value := c.Seek(key); bytes.Equal(k, key) {
		return value
	}
	return nil
}
