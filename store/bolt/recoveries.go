package bolt

import (
	"bytes"
	"context"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/queue"
	"github.com/storageapi/storageapi/webhooks"
)

// A recovery is one with how far it has come.
type recovery struct {
	webhooks.Recovery
	next uint64 // the number of the delivery to go on with
}

// CreateRecovery implements [webhooks.Store].
func (s *Store) CreateRecovery(ctx context.Context, created webhooks.Recovery) error {
	return s.writer.Run(ctx, func(b *batch) error {
		if b.Get(bucketWebhooks, prefixed(created.Account, created.WebhookID)) == nil {
			return webhooks.ErrNotFound
		}
		if b.Get(bucketRecoveries, []byte(created.ID)) != nil {
			return webhooks.ErrExists
		}
		if b.Get(bucketOpenRecoveries, []byte(created.WebhookID)) != nil {
			return webhooks.ErrRecovering
		}
		r := recovery{Recovery: created}
		if r.To.IsZero() {
			r.To = afterAll(s.lastPublished)
		}
		return putRecovery(b, &r)
	})
}

// afterAll returns a time after all events that are published so far, the last one
// then.
func afterAll(last time.Time) time.Time {
	if now := time.Now(); now.After(last) {
		last = now
	}
	return last.Add(time.Millisecond)
}

// RecoveryByID implements [webhooks.Store].
func (s *Store) RecoveryByID(ctx context.Context, account, id string) (found webhooks.Recovery, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return found, err
	}
	defer s.done(tx, &err)
	r, err := recoveryByID(tx, id)
	if err == nil && r.Account != account {
		return found, webhooks.ErrNotFound
	}
	return r.Recovery, err
}

// AdvanceRecovery implements [webhooks.Store].
func (s *Store) AdvanceRecovery(ctx context.Context, limit int) (advanced bool, err error) {
	err = s.writer.Run(ctx, func(b *batch) error {
		webhook, id := s.nextRecovery(b.tx)
		if advanced = webhook != nil; !advanced {
			return nil
		}
		s.recovered = webhook
		if err := b.Flush(); err != nil {
			return err
		}
		r, err := recoveryByID(b.tx, id)
		if err != nil { // it cannot be read: it must not block the others
			return b.Delete(bucketOpenRecoveries, webhook)
		}
		if err := s.advance(b, &r, limit); err != nil {
			return err
		}
		return putRecovery(b, &r)
	})
	return advanced, err
}

// nextRecovery returns the webhook whose turn it is, and its recovery; nil if all are
// done.
func (s *Store) nextRecovery(tx *bbolt.Tx) (webhook []byte, id string) {
	c := tx.Bucket(bucketOpenRecoveries).Cursor()
	k, record := c.Seek(s.recovered)
	if bytes.Equal(k, s.recovered) {
		k, record = c.Next()
	}
	if k == nil {
		k, record = c.First()
	}
	return bytes.Clone(k), newDecoder(record).string()
}

// advance looks at the recovery's next deliveries and makes them owed.
func (s *Store) advance(b *batch, r *recovery, limit int) error {
	webhook, err := s.webhookByID(b.tx, r.Account, r.WebhookID)
	if err != nil { // gone, or nothing can be sent to it
		r.Done = true
		return nil
	}
	query := webhooks.DeliveryQuery{States: r.States, From: r.From, To: r.To}
	low, high := between(b.tx, query)
	w := s.newWalk(b.tx, r.WebhookID)
	low = max(low, r.next)
	for low < high {
		run := low / runSize * runSize
		numbers, err := w.within(run)
		if err != nil {
			return err
		}
		for _, n := range numbers {
			if n < low || n >= high {
				continue
			}
			if limit--; limit < 0 {
				r.next = n
				return nil
			}
			d, ok := w.delivery(n)
			if !ok || d.State == webhooks.Pending || !query.Matches(&d) || !w.hasBody(n) {
				continue
			}
			if err := s.oweAgain(b, &webhook, n, queue.Owed{Attempts: lastNumber(&d), Recovered: true}); err != nil {
				return err
			}
			r.Recovered++
		}
		low = run + runSize
		if r.next = low; w.cost > maxStepCost {
			return nil
		}
	}
	r.Done = true
	return nil
}

func recoveryByID(tx *bbolt.Tx, id string) (recovery, error) {
	record := tx.Bucket(bucketRecoveries).Get([]byte(id))
	if record == nil {
		return recovery{}, webhooks.ErrNotFound
	}
	return decodeRecovery(id, record)
}

// putRecovery stores a recovery, and whether it is open.
func putRecovery(b *batch, r *recovery) error {
	var err error
	if r.Done {
		err = b.Delete(bucketOpenRecoveries, []byte(r.WebhookID))
	} else {
		e := newEncoder(len(r.ID) + 1)
		e.string(r.ID)
		err = b.Put(bucketOpenRecoveries, []byte(r.WebhookID), e)
	}
	if err != nil {
		return err
	}
	return b.Put(bucketRecoveries, []byte(r.ID), encodeRecovery(r))
}

func encodeRecovery(r *recovery) []byte {
	e := newEncoder(96)
	e.time(r.CreatedAt)
	e.string(r.Account)
	e.string(r.WebhookID)
	e.uint(uint64(len(r.States)))
	for _, state := range r.States {
		e.string(string(state))
	}
	e.time(r.From)
	e.time(r.To)
	e.uint(uint64(r.Recovered))
	e.bool(r.Done)
	e.uint(r.next)
	return e
}

func decodeRecovery(id string, record []byte) (recovery, error) {
	var r recovery
	r.ID = id
	d := newDecoder(record)
	r.CreatedAt = d.time()
	r.Account = d.string()
	r.WebhookID = d.string()
	for range d.uint() {
		if d.failed {
			break
		}
		r.States = append(r.States, webhooks.DeliveryState(d.string()))
	}
	r.From = d.time()
	r.To = d.time()
	r.Recovered = int(d.uint())
	r.Done = d.bool()
	r.next = d.uint()
	return r, d.err()
}

// purgeRecoveries deletes those that are done and were created before the time.
func purgeRecoveries(b *batch, before time.Time) error {
	var old [][]byte
	c := b.tx.Bucket(bucketRecoveries).Cursor()
	for k, record := c.First(); k != nil; k, record = c.Next() {
		r, err := decodeRecovery(string(k), record)
		if err != nil || r.Done && r.CreatedAt.Before(before) {
			old = append(old, bytes.Clone(k))
		}
	}
	return b.DeleteAll(bucketRecoveries, old)
}
