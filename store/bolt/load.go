package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/webhooks"
)

// Load implements [webhooks.Deliveries]. What was just published is in memory.
func (s *Store) Load(ctx context.Context, refs []webhooks.DeliveryRef) ([]webhooks.LoadedDelivery, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := s.writer.Ready(); err != nil {
		return nil, err // the outcome of an attempt could not be recorded
	}
	defer debug.SetPanicOnFault(catchFaults())
	l := &loader{store: s, ctx: context.WithoutCancel(ctx), now: time.Now()}
	defer l.end()
	list := make([]webhooks.LoadedDelivery, len(refs))
	for i, ref := range refs {
		if l.load(ref, &list[i]); l.err != nil {
			return nil, l.err
		}
	}
	return list, nil
}

// A loader loads deliveries. It reads an event that is for several webhooks once.
type loader struct {
	store *Store
	ctx   context.Context
	now   time.Time

	// The transaction, once something is to be read of the file.
	tx       *bbolt.Tx
	err      error // why there is none
	segments *segments
	bodies   *bbolt.Cursor
	fresh    *bbolt.Cursor
	pending  *bbolt.Cursor
	version  uint64 // of the index, before tx

	// The row of bucketFresh that was read last.
	bits     record.Bitmap
	bitsLast uint64

	packed     record.Pack // bodies of a segment; empty if they cannot be read
	packedLast uint64      // the segment's last number

	// The event that was read last. The numbers before after, from first on, are its own.
	first, after uint64
	event        record.Event
	eventErr     error
}

// begin begins the transaction, unless that was done, and reports whether there is one.
func (l *loader) begin() bool {
	if l.tx != nil || l.err != nil {
		return l.err == nil
	}
	defer func() {
		if p := recover(); p != nil {
			l.err = fmt.Errorf("read %s: panic: %v", l.store.db.Path(), p)
		}
	}()
	l.version = l.store.index.readVersion()
	if l.tx, l.err = l.store.view(l.ctx); l.err == nil {
		l.segments, l.bodies = newSegments(l.tx), l.tx.Bucket(bucketEvents).Cursor()
		l.fresh, l.pending = l.tx.Bucket(bucketFresh).Cursor(), l.tx.Bucket(bucketPending).Cursor()
	}
	return l.err == nil
}

// end ends it.
func (l *loader) end() {
	if l.tx != nil {
		_ = l.tx.Rollback()
	}
}

// load sets d to what a delivery is.
func (l *loader) load(ref webhooks.DeliveryRef, d *webhooks.LoadedDelivery) {
	d.State = webhooks.Unread // should it be unknown whether it is pending, since a page is damaged
	defer func() {
		if p := recover(); p != nil && d.State == webhooks.Ready { // a damaged page is a damaged record
			d.Webhook, d.Err = &webhooks.Webhook{ID: ref.WebhookID}, record.ErrCorrupt
		}
	}()
	w := l.webhook(ref.WebhookID)
	if l.err != nil {
		return
	}
	if w == nil || l.store.erasing.has(w.Account) {
		d.State = webhooks.Gone
		return
	}
	event, at, held := l.store.published.take(ref)
	if held {
		d.Due, d.Age = l.notLater(at), l.now.Sub(at)
	} else if !l.begin() || !l.readPending(ref, d) {
		d.State = webhooks.Gone
		return
	}
	if w.err == nil && !w.Claimable() {
		d.State, d.Webhook = webhooks.Passive, &w.Webhook
		return
	}
	d.State = webhooks.Ready
	if d.Event = event; !held {
		l.readEvent(ref.Number)
		d.Event, d.Err = l.event.EncodedEvent, l.eventErr
		if d.Age = l.store.age(l.event.PublishedAt); d.Due.IsZero() {
			d.Due = l.notLater(l.event.PublishedAt)
		}
	}
	if d.Webhook = &w.Webhook; w.err != nil {
		d.Webhook, d.Err = &webhooks.Webhook{ID: ref.WebhookID}, w.err
	}
}

// notLater returns when a delivery is due that is pending as published: at once. The clock may have been
// set back since, or ahead where the event was imported from.
func (l *loader) notLater(published time.Time) time.Time {
	if published.After(l.now) {
		return l.now
	}
	return published
}

// age returns the age of an event. Time that may not have passed does not count, see [Store.Doubt].
func (s *Store) age(published time.Time) time.Duration {
	if published.IsZero() {
		return 0
	}
	return max(0, s.clock.Time().Sub(published)-s.clock.Doubt())
}

// webhook returns the webhook of that id: as it is by now, or as readers of the transaction
// see it; nil if there is none.
func (l *loader) webhook(id string) *indexedWebhook {
	if w, changing := l.store.index.webhook(id); w != nil && !changing {
		return w
	}
	if !l.begin() {
		return nil
	}
	return l.store.webhookSeen(l.tx, l.version, id)
}

// readPending sets how the delivery is pending, and reports whether it is.
func (l *loader) readPending(ref webhooks.DeliveryRef, d *webhooks.LoadedDelivery) bool {
	number := ref.Number
	if segment, err := l.segments.at(number); err == nil {
		if webhook, err := segment.Recipient(number); err != nil || string(webhook) != ref.WebhookID {
			return false
		}
	} else if errors.Is(err, errNoSegment) {
		return false
	}
	if number < l.bits.First || number > l.bitsLast || l.bitsLast == 0 {
		l.bitsLast = 0
		if key, value := l.fresh.Seek(record.NumberKey(number)); len(key) == 8 {
			if m, err := record.DecodeBitmap(value); err == nil {
				l.bits, l.bitsLast = m, binary.BigEndian.Uint64(key)
			}
		}
	}
	if l.bitsLast > 0 && l.bits.Has(number) {
		return true // due since it was published
	}
	value := get(l.pending, record.NumberKey(number))
	if value == nil {
		return false
	}
	p := l.store.decodePending(value, l.now, l.store.clock.Steady(l.now))
	d.Due, d.Attempts, d.Before = p.Due, p.Attempts, p.Before
	return true
}

// readEvent reads the event whose delivery has the number.
func (l *loader) readEvent(number uint64) {
	if number >= l.first && number < l.after {
		return
	}
	l.first, l.after, l.event, l.eventErr = 0, 0, record.Event{}, record.ErrCorrupt // should reading panic
	segment, err := l.segments.at(number)
	if err != nil {
		l.eventErr = err
		return
	}
	if segment.Last != l.packedLast {
		l.packed, l.packedLast = record.Pack{}, segment.Last
		l.packed, _ = record.DecodePack(get(l.bodies, bodiesKey(segment.Key)))
	}
	i := segment.Index(number)
	l.event, l.eventErr = segment.Event(i)
	body := l.packed.At(i)
	if body == nil {
		l.eventErr = record.ErrCorrupt
	}
	l.event.Body = bytes.Clone(body)
	l.first, l.after = segment.Number(i), segment.End(i)
}

// get is [bbolt.Bucket.Get] with a cursor that is there already.
func get(c *bbolt.Cursor, key []byte) []byte {
	if k, value := c.Seek(key); bytes.Equal(k, key) {
		return value
	}
	return nil
}
