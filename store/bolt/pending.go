package bolt

import (
	"context"
	"time"

	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/queue"
	"github.com/storageapi/storageapi/webhooks"
)

// pending returns how the delivery of that number is pending, and whether it is; and the
// bitmap it is in if it is so as it was published.
func (b *batch) pending(number uint64) (p record.Pending, fresh *bitmap, pending bool) {
	if fresh := b.fresh.containing(b.tx, number); fresh != nil {
		return p, fresh, true
	}
	value := b.Get(bucketPending, record.NumberKey(number))
	p, _ = record.DecodePending(value) // what cannot be decoded counts for nothing
	return p, nil, value != nil
}

// removePending ends that a delivery is pending.
func (b *batch) removePending(number uint64) error {
	if b.fresh.remove(b, number) {
		return nil
	}
	return b.Delete(bucketPending, record.NumberKey(number))
}

// encodePending returns the record of what is due at a time to come by the system's clock,
// and marks the clock of the file, by which it is due in the record.
func (s *Store) encodePending(b *batch, p record.Pending) ([]byte, error) {
	if err := s.mark(b, markBusy); err != nil {
		return nil, err
	}
	p.Due = s.clock.Steady(p.Due)
	return p.Encode(), nil
}

// Redeliver implements [webhooks.Store].
func (s *Store) Redeliver(ctx context.Context, account, webhookID, eventID string, notice notices.Notice) error {
	return s.writer.Run(ctx, func(b *batch) error {
		done, err := s.redeliver(b, account, webhookID, eventID)
		if !done || err != nil {
			return err
		}
		return b.tell(notice)
	})
}

// redeliver makes a delivery due now, and reports whether it does.
func (s *Store) redeliver(b *batch, account, webhookID, eventID string) (done bool, err error) {
	if err := b.Flush(); err != nil {
		return false, err
	}
	webhook, err := s.webhookByID(b.tx, account, webhookID)
	if err == nil && b.isErasing(account) {
		err = webhooks.ErrNotFound
	}
	if err != nil {
		return false, err
	}
	segment, i, err := s.publishedEvent(b, account, eventID)
	if err != nil {
		return false, err
	}
	number, ok := segment.DeliveryTo(i, webhookID)
	if !ok || bodiesOf(b.tx, segment) == nil {
		return false, webhooks.ErrNotFound
	}
	event, err := segment.Event(i)
	if err != nil {
		return false, err
	}
	d, err := s.deliveryOf(b.tx, segment, &event, number, webhookID)
	switch {
	case err != nil:
		return false, err
	case d.State == "":
		return false, webhooks.ErrNotFound
	case d.State == webhooks.Pending:
		return s.makeDue(b, number, webhookID)
	}
	err = s.addPending(b, &webhook, number, record.Pending{Attempts: lastNumber(&d)}, true)
	b.AfterCommit(func() { s.queue.Probe(webhookID) })
	return true, err
}

// Probe implements [webhooks.Store].
func (s *Store) Probe(ctx context.Context, account, webhookID string) error {
	if _, err := s.WebhookByID(ctx, account, webhookID); err != nil {
		return err
	}
	s.queue.Probe(webhookID)
	return nil
}

// makeDue makes a pending delivery due now, and the next one of its webhook, unless it
// is leased, and reports whether it does.
func (s *Store) makeDue(b *batch, number uint64, webhook string) (due bool, err error) {
	if s.queue.Leased(webhook, number) {
		return false, nil
	}
	if b.fresh.containing(b.tx, number) != nil { // it is due since it was published
		now := time.Now()
		b.AfterCommit(func() {
			s.queue.MakeDue(webhook, number, now)
			s.queue.Probe(webhook)
		})
		return true, nil
	}
	p, err := record.DecodePending(b.Get(bucketPending, record.NumberKey(number)))
	if err != nil {
		return false, err
	}
	p.Due = time.Now()
	p.Recovered = false
	b.AfterCommit(func() {
		s.queue.MakeDue(webhook, number, p.Due)
		s.queue.Probe(webhook)
	})
	value, err := s.encodePending(b, p)
	if err != nil {
		return false, err
	}
	return true, b.Put(bucketPending, record.NumberKey(number), value)
}

// endWait stores that a pending delivery is due now, if it is not leased and waits for a later
// time, and reports whether it does.
func (s *Store) endWait(b *batch, webhook string, number uint64, now time.Time) (waits bool, err error) {
	p, fresh, pending := b.pending(number)
	if fresh != nil || !pending || !p.Due.After(s.clock.Steady(now)) || s.queue.Leased(webhook, number) {
		return false, nil
	}
	p.Due = now
	value, err := s.encodePending(b, p)
	if err != nil {
		return false, err
	}
	return true, b.Put(bucketPending, record.NumberKey(number), value)
}

// lastNumber returns the number of the delivery's last attempt.
func lastNumber(d *webhooks.Delivery) int {
	if len(d.Attempts) == 0 {
		return 0
	}
	return d.Attempts[len(d.Attempts)-1].Number
}

// addPending makes a delivery that is not pending due now, with the attempts that p says;
// if first is set, before all others that are pending for the webhook.
func (s *Store) addPending(b *batch, webhook *webhooks.Webhook, number uint64, p record.Pending, first bool) error {
	if b.skipped.remove(b, number) {
		b.noteFailed(webhook.ID, number, false)
	}
	p.Due, p.Before = time.Now(), p.Attempts
	entry := queue.Pending{
		Webhook: webhook.ID, Account: webhook.Account, Standing: queue.StandingOf(webhook), Seq: number,
		Due: p.Due, Attempts: p.Attempts, Before: p.Before, Recovered: p.Recovered, First: first,
	}
	claimable := webhook.Claimable()
	b.AfterCommit(func() {
		if s.queue.Add(entry); !claimable {
			s.queue.Pause(entry.Webhook)
		}
	})
	value, err := s.encodePending(b, p)
	if err != nil {
		return err
	}
	return b.Append(bucketPending, record.NumberKey(number), value)
}

// Backlog implements [webhooks.Store].
func (s *Store) Backlog(ctx context.Context, webhookID string) (backlog webhooks.Backlog, err error) {
	if err := s.applied(ctx); err != nil {
		return webhooks.Backlog{}, err
	}
	backlog = s.queue.Backlog(time.Now(), webhookID)
	if webhookID == "" {
		backlog.Held, err = s.countHeld(ctx)
	}
	return backlog, err
}

// LongestWait implements [webhooks.Store].
func (s *Store) LongestWait(ctx context.Context) (wait time.Duration, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return 0, err
	}
	defer s.done(tx, catchFaults(), &err)
	if tx.Bucket(bucketMeta).Get(keySchema) == nil { // it is asked whether the file can be read
		return 0, ErrSchema
	}
	return s.queue.LongestWait(time.Now()), nil
}

// applied returns once the queue knows of every step that had returned when it was called.
func (s *Store) applied(ctx context.Context) error {
	tx, err := s.view(ctx) // says whether the store is closed
	if err != nil {
		return err
	}
	_ = tx.Rollback()
	return s.writer.Applied(ctx)
}
