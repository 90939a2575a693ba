package bolt

import (
	"context"
	"time"

	"github.com/storageapi/storageapi/store/queue"
	"github.com/storageapi/storageapi/webhooks"
)

// owes returns the delivery of that number as it is owed, and whether it is; and the
// mark of it if it is so as it was published.
func (b *batch) owes(number uint64) (o queue.Owed, fresh *mark, owed bool) {
	if fresh := b.fresh.of(b.tx, number); fresh != nil {
		return o, fresh, true
	}
	record := b.Get(bucketOwed, seqKey(number))
	o, _ = decodeOwed(record) // what cannot be read of it counts for nothing
	return o, nil, record != nil
}

// unowe ends that a delivery is owed.
func (b *batch) unowe(number uint64) error {
	if b.fresh.clear(b, number) {
		return nil
	}
	return b.Delete(bucketOwed, seqKey(number))
}

// owedRecord returns the record of what is due at a time to come, and marks the clock that
// this is told by.
func (s *Store) owedRecord(b *batch, o *queue.Owed) ([]byte, error) {
	if err := s.mark(b, markBusy); err != nil {
		return nil, err
	}
	steady := *o
	steady.Due = s.clock.Steady(o.Due)
	return encodeOwed(&steady), nil
}

// maxAttempts is more than any schedule has.
const maxAttempts = 1 << 20

// An owed record says when a delivery is due, by the clock that is not set, and what was
// before.
func encodeOwed(o *queue.Owed) []byte {
	e := newEncoder(16)
	e.time(o.Due)
	e.uint(uint64(o.Attempts))
	e.uint(uint64(o.Before))
	e.bool(o.Recovered)
	return e
}

// decodeOwed returns what an owed record holds; whose it is the segment says.
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

// Redeliver implements [webhooks.Store].
func (s *Store) Redeliver(ctx context.Context, account, webhookID, eventID string) error {
	return s.writer.Run(ctx, func(b *batch) error { return s.redeliver(b, account, webhookID, eventID) })
}

func (s *Store) redeliver(b *batch, account, webhookID, eventID string) error {
	if err := b.Flush(); err != nil {
		return err
	}
	webhook, err := s.webhookByID(b.tx, account, webhookID)
	if err != nil {
		return err
	}
	segment, place, err := eventByID(b.tx, account, eventID)
	if err != nil {
		return err
	}
	number, ok := segment.deliveryTo(place, webhookID)
	if !ok || b.Get(bucketBodies, segment.key) == nil {
		return webhooks.ErrNotFound
	}
	event, err := segment.event(place)
	if err != nil {
		return err
	}
	d, err := s.deliveryOf(b.tx, segment, &event, number, webhookID)
	switch {
	case err != nil:
		return err
	case d.State == "":
		return webhooks.ErrNotFound
	case d.State == webhooks.Pending:
		return s.expedite(b, number, webhookID)
	}
	err = s.oweAgain(b, &webhook, number, queue.Owed{Attempts: lastNumber(&d), First: true})
	b.AfterCommit(func() { s.queue.Probe(webhookID) })
	return err
}

// Probe implements [webhooks.Store].
func (s *Store) Probe(ctx context.Context, account, webhookID string) error {
	if _, err := s.WebhookByID(ctx, account, webhookID); err != nil {
		return err
	}
	s.queue.Probe(webhookID)
	return nil
}

// expedite makes an owed delivery due now, and the next one of its webhook, unless it
// is leased.
func (s *Store) expedite(b *batch, number uint64, webhook string) error {
	if s.queue.Leased(webhook, number) {
		return nil
	}
	if b.fresh.of(b.tx, number) != nil { // it is due since it was published
		now := time.Now()
		b.AfterCommit(func() {
			s.queue.MakeDue(webhook, number, now)
			s.queue.Probe(webhook)
		})
		return nil
	}
	o, err := decodeOwed(b.Get(bucketOwed, seqKey(number)))
	if err != nil {
		return err
	}
	o.Due = time.Now()
	o.Recovered = false
	b.AfterCommit(func() {
		s.queue.MakeDue(webhook, number, o.Due)
		s.queue.Probe(webhook)
	})
	record, err := s.owedRecord(b, &o)
	if err != nil {
		return err
	}
	return b.Put(bucketOwed, seqKey(number), record)
}

// lastNumber returns the number of the delivery's last attempt.
func lastNumber(d *webhooks.Delivery) int {
	if len(d.Attempts) == 0 {
		return 0
	}
	return d.Attempts[len(d.Attempts)-1].Number
}

// oweAgain makes a delivery that is not owed due, as o says.
func (s *Store) oweAgain(b *batch, webhook *webhooks.Webhook, number uint64, o queue.Owed) error {
	b.skipped.clear(b, number)
	o.Webhook, o.Account, o.Standing = webhook.ID, webhook.Account, queue.StandingOf(webhook)
	o.Seq, o.Due, o.Before = number, time.Now(), o.Attempts
	active := webhook.Active
	b.AfterCommit(func() {
		if s.queue.Add(o); !active {
			s.queue.Pause(o.Webhook)
		}
	})
	record, err := s.owedRecord(b, &o)
	if err != nil {
		return err
	}
	return b.Append(bucketOwed, seqKey(number), record)
}

// Backlog implements [webhooks.Store].
func (s *Store) Backlog(ctx context.Context, webhookID string) (webhooks.Backlog, error) {
	tx, err := s.view(ctx) // says whether the store is closed
	if err != nil {
		return webhooks.Backlog{}, err
	}
	_ = tx.Rollback()
	if err := s.writer.Applied(ctx); err != nil {
		return webhooks.Backlog{}, err
	}
	return s.queue.Backlog(time.Now(), webhookID), nil
}
