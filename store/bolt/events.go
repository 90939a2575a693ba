package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/internal/queue"
	"github.com/storageapi/storageapi/webhooks"
)

// Enqueue implements [webhooks.Store].
func (s *Store) Enqueue(ctx context.Context, event webhooks.Envelope) (deliveries int, err error) {
	// What can be made ready outside of the step does not keep others waiting.
	rows := encodeRows(&event)
	err = s.writer.run(ctx, func(b *batch) error {
		deliveries, _, err = s.enqueue(b, rows, "")
		return err
	})
	return deliveries, err
}

// eventRows are what is stored of an event.
type eventRows struct {
	account          string
	kind             webhooks.EventType
	id, record, body []byte
}

func encodeRows(event *webhooks.Envelope) eventRows {
	return eventRows{event.Account, event.Type, prefixed(event.ID, event.Account), encodeEvent(event), encodeBody(event.Body)}
}

// enqueue stores an event for the only webhook, or if that is empty for all that
// are subscribed, and returns how many deliveries of it were owed at first, and
// whether it is new.
func (s *Store) enqueue(b *batch, rows eventRows, only string) (owed int, isNew bool, err error) {
	// Most ids are newer than all before, and need not be looked for.
	if bytes.Compare(rows.id, s.newestEvent) > 0 {
		s.newestEvent = rows.id
	} else if seq := b.get(bucketEventIDs, rows.id); seq != nil {
		first, err := decodeEvent(b.get(bucketEvents, seq))
		return first.deliveries, false, err
	}
	now := time.Now()
	if now.After(s.lastPublished) {
		s.lastPublished = now
	}
	active, inactive := s.subscribers(b.tx, rows.account, rows.kind)
	if only != "" {
		active, inactive = the(only, active), the(only, inactive)
	}
	n, err := b.tx.Bucket(bucketEvents).NextSequence()
	if err != nil {
		return 0, false, err
	}
	seq := seqKey(n, "")
	setPublished(rows.record, s.lastPublished, len(active))
	if err := b.add(bucketEvents, seq, rows.record); err != nil {
		return 0, false, err
	}
	if err := b.add(bucketBodies, seq, rows.body); err != nil {
		return 0, false, err
	}
	if err := b.add(bucketEventIDs, rows.id, seq); err != nil {
		return 0, false, err
	}
	for _, id := range active {
		if err := s.owe(b, queue.Owed{Webhook: id, Account: rows.account, Seq: n, Due: now}); err != nil {
			return 0, false, err
		}
	}
	for _, id := range inactive {
		if err := b.add(bucketSkipped, seqKey(n, id), newEncoder(0)); err != nil {
			return 0, false, err
		}
	}
	return len(active), true, nil
}

// the returns what of the ids is the one.
func the(one string, ids []string) []string {
	if slices.Contains(ids, one) {
		return []string{one}
	}
	return nil
}

// loadNewest finds the greatest event id there is, and when the last event was
// published.
func (s *Store) loadNewest() error {
	return s.db.View(func(tx *bbolt.Tx) error {
		last, _ := tx.Bucket(bucketEventIDs).Cursor().Last()
		s.newestEvent = bytes.Clone(last)
		_, record := tx.Bucket(bucketEvents).Cursor().Last()
		if event, err := decodeEvent(record); err == nil {
			s.lastPublished = event.published
		}
		return nil
	})
}

// An event record begins with what is known only once it is stored, in a fixed
// size: when it was published, and how many deliveries were owed. Its body stands
// apart, since it is purged earlier.
func encodeEvent(event *webhooks.Envelope) []byte {
	e := newEncoder(48 + len(event.Type) + len(event.ID) + len(event.Account))
	e.raw(make([]byte, 12))
	e.time(event.Timestamp)
	e.string(string(event.Type))
	e.string(event.ID)
	e.string(event.Account)
	return e
}

func setPublished(record []byte, at time.Time, deliveries int) {
	binary.BigEndian.PutUint64(record[1:], uint64(at.UnixMilli()))
	binary.BigEndian.PutUint32(record[9:], uint32(deliveries))
}

type eventRecord struct {
	webhooks.Envelope // without Body
	published         time.Time
	deliveries        int
}

func decodeEvent(record []byte) (eventRecord, error) {
	var r eventRecord
	d := newDecoder(record)
	if fixed := d.raw(12); fixed != nil {
		r.published = time.UnixMilli(int64(binary.BigEndian.Uint64(fixed))).UTC()
		r.deliveries = int(binary.BigEndian.Uint32(fixed[8:]))
	}
	r.Timestamp = d.time()
	r.Type = webhooks.EventType(d.string())
	r.ID = d.string()
	r.Account = d.string()
	if d.failed {
		return eventRecord{}, errRecord
	}
	return r, nil
}

func encodeBody(body []byte) []byte {
	e := newEncoder(len(body))
	e.raw(body)
	return e
}

func decodeBody(record []byte) ([]byte, error) {
	d := newDecoder(record)
	return bytes.Clone(d.rest), d.err()
}

// firstSince returns the number of the first event published then or later; one
// more than the last if there is none.
func firstSince(tx *bbolt.Tx, at time.Time) uint64 {
	c := tx.Bucket(bucketEvents).Cursor()
	first, _ := c.First()
	last, _ := c.Last()
	if first == nil {
		return 0
	}
	low, high := binary.BigEndian.Uint64(first), binary.BigEndian.Uint64(last)+1
	for low < high { // events before low are too old, those from high on are not
		middle := low + (high-low)/2
		k, record := c.Seek(seqKey(middle, ""))
		event, err := decodeEvent(record)
		for err != nil && k != nil { // damaged: the next one tells
			k, record = c.Next()
			event, err = decodeEvent(record)
		}
		if k != nil && event.published.Before(at) {
			low = binary.BigEndian.Uint64(k) + 1
		} else {
			high = middle
		}
	}
	return low
}
