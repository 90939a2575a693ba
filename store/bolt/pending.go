package bolt

import (
	"context"
	"time"

	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
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
		if err := s.redeliver(b, account, webhookID, eventID); err != nil {
			return err
		}
		return b.tell(notice)
	})
}

// redeliver makes a delivery due now.
func (s *Store) redeliver(b *batch, account, webhookID, eventID string) error {
	if err := b.Flush(); err != nil {
		return err
	}
	webhook, err := s.webhookByID(b.tx, account, webhookID)
	if err == nil && b.isErasing(account) {
		err = webhooks.ErrNotFound
	}
	if err != nil {
		return err
	}
	segment, i, err := s.publishedEvent(b, account, eventID)
	if err != nil {
		return err
	}
	number, ok := segment.DeliveryTo(i, webhookID)
	if !ok || bodiesOf(b.tx, segment) == nil {
		return webhooks.ErrNotFound
	}
	event, err := segment.Event(i)
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
		return s.makeDue(b, number, webhookID)
	}
	err = s.addPending(b, &webhook, number, record.Pending{Attempts: lastNumber(&d), First: true})
	b.AfterCommit(func() { s.feed.probe(webhookID) })
	return err
}

// Probe implements [webhooks.Store].
func (s *Store) Probe(ctx context.Context, account, webhookID string) error {
	if _, err := s.WebhookByID(ctx, account, webhookID); err != nil {
		return err
	}
	s.feed.probe(webhookID)
	return nil
}

// makeDue makes a pending delivery due now, and the next one of its webhook.
func (s *Store) makeDue(b *batch, number uint64, webhook string) error {
	b.AfterCommit(func() {
		s.feed.report(func(to webhooks.Scheduler) {
			to.Nudge(webhooks.DeliveryRef{WebhookID: webhook, Number: number})
			to.Probe(webhook)
		})
	})
	p, fresh, _ := b.pending(number)
	if fresh != nil {
		return nil // it is due since it was published
	}
	p.Due, p.Recovered, p.First = time.Now(), false, true
	value, err := s.encodePending(b, p)
	if err != nil {
		return err
	}
	return b.Put(bucketPending, record.NumberKey(number), value)
}

// endWait makes a pending delivery due now, if it waits for a later time, and reports whether
// it does.
func (s *Store) endWait(b *batch, webhook *webhooks.Webhook, number uint64, now time.Time) (waits bool, err error) {
	p, fresh, pending := b.pending(number)
	if fresh != nil || !pending || !p.Due.After(s.clock.Steady(now)) {
		return false, nil
	}
	return true, s.putPending(b, webhook, number, p)
}

// lastNumber returns the number of the delivery's last attempt.
func lastNumber(d *webhooks.Delivery) int {
	if len(d.Attempts) == 0 {
		return 0
	}
	return d.Attempts[len(d.Attempts)-1].Number
}

// addPending makes a delivery that is not pending due now, with p's attempts and place.
func (s *Store) addPending(b *batch, webhook *webhooks.Webhook, number uint64, p record.Pending) error {
	if b.skipped.remove(b, number) {
		b.noteFailed(webhook.ID, number, false)
	}
	p.Before = p.Attempts
	return s.putPending(b, webhook, number, p)
}

// putPending stores and reports a delivery as due now.
func (s *Store) putPending(b *batch, webhook *webhooks.Webhook, number uint64, p record.Pending) error {
	p.Due = time.Now()
	report := reportOf(number, webhook, &p)
	b.AfterCommit(func() { s.feed.add(report) })
	value, err := s.encodePending(b, p)
	if err != nil {
		return err
	}
	return b.Append(bucketPending, record.NumberKey(number), value)
}
