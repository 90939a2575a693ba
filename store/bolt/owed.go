package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/internal/queue"
	"github.com/storageapi/storageapi/webhooks"
)

// owe makes a delivery owed.
func (s *Store) owe(b *batch, o queue.Owed) error {
	if err := b.add(bucketOwed, seqKey(o.Seq, o.Webhook), encodeOwed(o.Due, o.Attempts, o.Before, o.Recovered)); err != nil {
		return err
	}
	b.owed = append(b.owed, owed{o.Webhook, o.Seq})
	b.done = append(b.done, func() { s.queue.Add(o) })
	return nil
}

// maxAttempts is more than any schedule has.
const maxAttempts = 1 << 20

// An owed record says when a delivery is due and what was before.
func encodeOwed(due time.Time, attempts, before int, recovered bool) []byte {
	e := newEncoder(16)
	e.time(due)
	e.uint(uint64(attempts))
	e.uint(uint64(before))
	e.bool(recovered)
	return e
}

// decodeOwed returns what an owed record holds; its seq and webhook are its key's.
func decodeOwed(record []byte) (o queue.Owed, err error) {
	d := newDecoder(record)
	o.Due = d.time()
	attempts, before := d.uint(), d.uint()
	o.Recovered = d.bool()
	if d.failed || attempts > maxAttempts || before > attempts {
		return queue.Owed{}, errRecord
	}
	o.Attempts, o.Before = int(attempts), int(before)
	return o, nil
}

// splitSeq splits a key that begins with an event's number.
func splitSeq(key []byte) (seq uint64, rest []byte, ok bool) {
	if len(key) < 8 {
		return 0, nil, false
	}
	return binary.BigEndian.Uint64(key), key[8:], true
}

// loadQueue tells the queue what the file says is owed, and forgets what is owed
// to webhooks that are gone.
func (s *Store) loadQueue() error {
	var orphans [][]byte
	err := s.db.View(func(tx *bbolt.Tx) error {
		type lane struct {
			id, account   string
			gone, passive bool
		}
		lanes := make(map[string]lane)
		now := time.Now()
		// If the clock was set back while nobody looked, what was due in a
		// minute is not to wait for it to catch up.
		ahead := max(0, s.lastPublished.Sub(now))
		err := tx.Bucket(bucketOwed).ForEach(func(k, record []byte) error {
			seq, webhook, ok := splitSeq(k)
			if !ok {
				return nil
			}
			l, known := lanes[string(webhook)]
			if !known {
				l.id = string(webhook)
				l.account = string(tx.Bucket(bucketWebhookIDs).Get(webhook))
				found, err := s.webhookOf(tx, l.id)
				l.gone = errors.Is(err, webhooks.ErrNotFound)
				l.passive = err == nil && !found.Active
				lanes[l.id] = l
			}
			if l.gone {
				orphans = append(orphans, bytes.Clone(k))
				return nil
			}
			o, err := decodeOwed(record)
			if err != nil {
				o.Due = now // its event is there: better late than never
			}
			o.Webhook, o.Account, o.Seq, o.Due = l.id, l.account, seq, o.Due.Add(-ahead)
			s.queue.Add(o)
			return nil
		})
		for _, l := range lanes {
			if l.passive {
				s.queue.Pause(l.id)
			}
		}
		return err
	})
	if err != nil || len(orphans) == 0 {
		return err
	}
	return s.writer.run(context.Background(), func(b *batch) error { return b.deleteAll(bucketOwed, orphans) })
}

// Redeliver implements [webhooks.Store].
func (s *Store) Redeliver(ctx context.Context, account, webhookID, eventID string) error {
	return s.writer.run(ctx, func(b *batch) error {
		webhook, err := s.webhookByID(b.tx, account, webhookID)
		if err != nil {
			return err
		}
		seq := b.get(bucketEventIDs, prefixed(eventID, account))
		if seq == nil || b.get(bucketBodies, seq) == nil {
			return webhooks.ErrNotFound
		}
		n := binary.BigEndian.Uint64(seq)
		d, err := deliveryOf(b.tx, n, webhookID)
		switch {
		case err != nil:
			return err
		case d.State == "":
			return webhooks.ErrNotFound
		case d.State == webhooks.Pending:
			return s.expedite(b, n, webhookID)
		}
		return s.oweAgain(b, &webhook, n, lastNumber(&d), false)
	})
}

// expedite makes an owed delivery due now, unless it is leased.
func (s *Store) expedite(b *batch, seq uint64, webhook string) error {
	if s.queue.Leased(webhook, seq) {
		return nil
	}
	row := seqKey(seq, webhook)
	o, err := decodeOwed(b.get(bucketOwed, row))
	if err != nil {
		return err
	}
	now := time.Now()
	b.done = append(b.done, func() { s.queue.Expedite(webhook, seq, now) })
	return b.put(bucketOwed, row, encodeOwed(now, o.Attempts, o.Before, o.Recovered))
}

// lastNumber returns the number of the delivery's last attempt.
func lastNumber(d *webhooks.Delivery) int {
	if len(d.Attempts) == 0 {
		return 0
	}
	return d.Attempts[len(d.Attempts)-1].Number
}

// oweAgain makes a delivery that is not owed due, after so many attempts.
func (s *Store) oweAgain(b *batch, webhook *webhooks.Webhook, seq uint64, attempts int, recovered bool) error {
	row := seqKey(seq, webhook.ID)
	if b.get(bucketSkipped, row) != nil {
		if err := b.delete(bucketSkipped, row); err != nil {
			return err
		}
	}
	err := s.owe(b, queue.Owed{
		Webhook: webhook.ID, Account: webhook.Account, Seq: seq, Due: time.Now(),
		Attempts: attempts, Before: attempts, Recovered: recovered,
	})
	if id := webhook.ID; !webhook.Active {
		b.done = append(b.done, func() { s.queue.Pause(id) })
	}
	return err
}

// Backlog implements [webhooks.Store].
func (s *Store) Backlog(ctx context.Context, webhookID string) (webhooks.Backlog, error) {
	tx, err := s.view(ctx) // says whether the store is closed
	if err != nil {
		return webhooks.Backlog{}, err
	}
	_ = tx.Rollback()
	return s.queue.Backlog(time.Now(), webhookID), nil
}
