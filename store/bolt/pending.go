package bolt

import (
	"context"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/bolt/internal/eventlog"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/driver"
)

// Redeliver implements [driver.WebhookStore].
func (s *engine) Redeliver(ctx context.Context, account, webhookID, eventID string, entry audit.Entry) error {
	return s.writer.Run(ctx, func(b *batch) error {
		if err := s.redeliver(b, account, webhookID, eventID); err != nil {
			return err
		}
		return b.tell(entry)
	})
}

// redeliver schedules a delivery for immediate sending.
func (s *engine) redeliver(b *batch, account, webhookID, eventID string) error {
	if err := b.Flush(); err != nil {
		return err
	}
	webhook, err := s.webhookByID(b.tx, account, webhookID)
	if err == nil && b.isErasing(account) {
		err = apierr.ErrNotFound
	}
	if err != nil {
		return err
	}
	event, err := b.log.Event(account, eventID)
	if err != nil {
		return err
	}
	log := b.log.View()
	number, ok := event.DeliveryTo(webhookID)
	if !ok || !log.HasBody(&event) {
		return apierr.ErrNotFound
	}
	d, err := log.Delivery(&event, number, webhookID)
	switch {
	case err != nil:
		return err
	case d.State == "":
		return apierr.ErrNotFound
	case d.State == driver.Pending:
		return s.makeDue(b, number, webhookID)
	}
	err = s.addPending(b, &webhook, number, record.Pending{Attempts: lastNumber(&d), First: true})
	b.AfterCommit(func() { s.feed.Probe(webhookID) })
	return err
}

// Probe implements [driver.WebhookStore].
func (s *engine) Probe(ctx context.Context, account, webhookID string) error {
	if _, err := s.WebhookByID(ctx, account, webhookID); err != nil {
		return err
	}
	s.feed.Probe(webhookID)
	return nil
}

// makeDue schedules a pending delivery for immediate sending, ahead of the webhook's other
// deliveries, and probes the webhook.
func (s *engine) makeDue(b *batch, number uint64, webhook string) error {
	b.AfterCommit(func() {
		s.feed.Report(func(to driver.Scheduler) {
			to.Nudge(driver.DeliveryRef{WebhookID: webhook, Number: number})
			to.Probe(webhook)
		})
	})
	p, asPublished, _ := b.log.Pending(number)
	if asPublished {
		return nil // the delivery has been due since its publication
	}
	p.Due, p.Recovered, p.First = time.Now(), false, true
	return b.log.PutPending(number, p)
}

// endWait reschedules a pending delivery to be due now if it is due later. waits reports whether it
// was due later.
func (s *engine) endWait(b *batch, webhook *driver.Webhook, number uint64, now time.Time) (waits bool, err error) {
	p, asPublished, pending := b.log.Pending(number)
	if asPublished || !pending || !p.Due.After(s.clock.Steady(now)) {
		return false, nil
	}
	return true, s.putPending(b, webhook, number, p)
}

// lastNumber returns the number of the delivery's last attempt, or 0.
func lastNumber(d *driver.Delivery) int {
	if len(d.Attempts) == 0 {
		return 0
	}
	return d.Attempts[len(d.Attempts)-1].Number
}

// addPending schedules a delivery that is not pending: it becomes pending and due now, with the
// attempts and priority of p.
func (s *engine) addPending(b *batch, webhook *driver.Webhook, number uint64, p record.Pending) error {
	p.Before = p.Attempts
	return s.putPending(b, webhook, number, p)
}

// putPending stores a delivery as due now, and reports it to the scheduler after the commit.
func (s *engine) putPending(b *batch, webhook *driver.Webhook, number uint64, p record.Pending) error {
	p.Due = time.Now()
	report := eventlog.Report(number, &p)
	report.Webhook = webhook
	b.AfterCommit(func() { s.feed.Add(report) })
	return b.log.MakePending(webhook.ID, number, p)
}
