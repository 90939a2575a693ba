package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/webhooks"
)

// Enqueue implements [webhooks.Store].
func (s *Store) Enqueue(ctx context.Context, event webhooks.Envelope) (int, error) {
	// What can be made ready outside of the step does not keep others waiting.
	row, record := prefixed(event.ID, event.Account), encodeEvent(&event)
	var deliveries int
	err := s.writer.run(ctx, func(b *batch) error {
		// Most ids are newer than all before, and need not be looked for.
		if bytes.Compare(row, s.newestEvent) > 0 {
			s.newestEvent = row
		} else if seq := b.get(bucketEventIDs, row); seq != nil {
			first, err := decodeEvent(b.get(bucketEvents, seq))
			deliveries = first.deliveries
			return err
		}
		due := time.Now()
		ids := s.subscriptions.of(b.tx, event.Account, event.Type)
		seq, err := b.tx.Bucket(bucketEvents).NextSequence()
		if err != nil {
			return err
		}
		setDeliveries(record, len(ids))
		if err := b.add(bucketEvents, seqKey(seq, ""), record); err != nil {
			return err
		}
		if err := b.add(bucketEventIDs, row, seqKey(seq, "")); err != nil {
			return err
		}
		for _, id := range ids {
			if err := b.add(bucketOwed, seqKey(seq, id), encodeOwed(due, 0)); err != nil {
				return err
			}
			b.owed = append(b.owed, owed{id, seq})
			b.done = append(b.done, func() { s.queue.Add(id, seq, due, 0) })
		}
		deliveries = len(ids)
		return nil
	})
	return deliveries, err
}

// loadNewestEvent finds the greatest event id there is.
func (s *Store) loadNewestEvent() error {
	return s.db.View(func(tx *bbolt.Tx) error {
		last, _ := tx.Bucket(bucketEventIDs).Cursor().Last()
		s.newestEvent = bytes.Clone(last)
		return nil
	})
}

// EventDeliveries implements [webhooks.Store].
func (s *Store) EventDeliveries(ctx context.Context, account, eventID string) (list []webhooks.Delivery, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	defer s.done(tx, &err)
	seq := tx.Bucket(bucketEventIDs).Get(prefixed(eventID, account))
	if seq == nil {
		return nil, webhooks.ErrNotFound
	}
	return deliveriesOf(tx, seq, eventID)
}

// deliveriesOf puts the event's deliveries together: those that are owed and
// those whose last attempt settled them.
func deliveriesOf(tx *bbolt.Tx, seq []byte, eventID string) ([]webhooks.Delivery, error) {
	var list []webhooks.Delivery
	place := make(map[string]int) // in list, by webhook id
	of := func(id string) *webhooks.Delivery {
		i, ok := place[id]
		if !ok {
			i = len(list)
			place[id] = i
			list = append(list, webhooks.Delivery{EventID: eventID, WebhookID: id})
		}
		return &list[i]
	}
	c := tx.Bucket(bucketAttempts).Cursor()
	for k, record := c.Seek(seq); bytes.HasPrefix(k, seq); k, record = c.Next() {
		key := decoder{rest: k[len(seq):]}
		id := key.string()
		attempt, outcome, err := decodeAttempt(record)
		if err != nil || key.failed {
			return nil, errRecord
		}
		d := of(id)
		d.Attempts = append(d.Attempts, attempt)
		d.State = stateAfter(outcome)
	}
	c = tx.Bucket(bucketOwed).Cursor()
	for k, record := c.Seek(seq); bytes.HasPrefix(k, seq); k, record = c.Next() {
		due, _, err := decodeOwed(record)
		if err != nil {
			return nil, err
		}
		d := of(string(k[len(seq):]))
		d.State, d.NextAttemptAt = webhooks.Pending, due
	}
	return settledOrOwed(list), nil
}

// An event record begins with how many deliveries the event had when it was
// stored, see setDeliveries.
func encodeEvent(event *webhooks.Envelope) []byte {
	e := newEncoder(48 + len(event.Type) + len(event.ID) + len(event.Account) + len(event.Body))
	e.raw(make([]byte, 4))
	e.time(event.Timestamp)
	e.string(string(event.Type))
	e.string(event.ID)
	e.string(event.Account)
	e.raw(event.Body)
	return e
}

func setDeliveries(record []byte, n int) { binary.BigEndian.PutUint32(record[1:], uint32(n)) }

type eventRecord struct {
	webhooks.Envelope
	deliveries int
}

func decodeEvent(record []byte) (eventRecord, error) {
	var r eventRecord
	d := newDecoder(record)
	if n := d.raw(4); n != nil {
		r.deliveries = int(binary.BigEndian.Uint32(n))
	}
	r.Timestamp = d.time()
	r.Type = webhooks.EventType(d.string())
	r.ID = d.string()
	r.Account = d.string()
	r.Body = bytes.Clone(d.rest)
	if d.failed {
		return eventRecord{}, errRecord
	}
	return r, nil
}

// maxAttempts is more than any schedule has.
const maxAttempts = 1 << 20

// An owed record says when a delivery is due and how many attempts were made.
func encodeOwed(due time.Time, attempts int) []byte {
	e := newEncoder(16)
	e.time(due)
	e.uint(uint64(attempts))
	return e
}

func decodeOwed(record []byte) (due time.Time, attempts int, err error) {
	d := newDecoder(record)
	due = d.time()
	n := d.uint()
	if n > maxAttempts {
		d.failed = true
	}
	return due, int(n), d.err()
}

// splitOwed splits the key of an owed record.
func splitOwed(key []byte) (seq uint64, webhook []byte, ok bool) {
	if len(key) < 8 {
		return 0, nil, false
	}
	return binary.BigEndian.Uint64(key), key[8:], true
}
