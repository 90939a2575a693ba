package bolt

import (
	"context"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/eventlog"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/driver"
)

// Load implements [driver.Deliveries].
func (s *engine) Load(ctx context.Context, refs []driver.DeliveryRef) (list []driver.LoadedDelivery, err error) {
	if err := s.writer.Ready(); err != nil {
		return nil, err // the outcomes of attempts could not be stored
	}
	version := s.webhookRows.version()
	tx, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	defer s.done(tx, catchFaults(), &err)
	l := &loader{store: s, tx: tx, log: s.log.View(tx), version: version, now: time.Now()}
	list = make([]driver.LoadedDelivery, len(refs))
	for i, ref := range refs {
		l.load(ref, &list[i])
	}
	return list, nil
}

// A loader loads deliveries for one call to Load.
type loader struct {
	store   *engine
	tx      *bbolt.Tx
	log     *eventlog.View
	version uint64 // version of webhookRows before tx began
	now     time.Time
}

// load loads the delivery that ref identifies into d.
func (l *loader) load(ref driver.DeliveryRef, d *driver.LoadedDelivery) {
	d.State = driver.Unread // in case a damaged page hides whether the delivery is pending
	defer func() {
		// Treat a damaged page like a damaged record.
		if p := recover(); p != nil && d.State == driver.Ready {
			d.Webhook, d.Err = &driver.Webhook{ID: ref.WebhookID}, record.ErrCorrupt
		}
	}()
	w := l.store.webhookRows.seen(l.tx, l.version, ref.WebhookID)
	if w == nil || l.store.erasing.has(w.Account) || !l.readPending(ref, d) {
		d.State = driver.Gone
		return
	}
	if w.err == nil && !w.Claimable() {
		d.State, d.Webhook = driver.Passive, &w.Webhook
		return
	}
	d.State = driver.Ready
	event, err := l.log.EventOf(ref.Number)
	d.Event, d.Err = event.EncodedEvent, err
	if d.Age = l.store.age(event.PublishedAt); d.Due.IsZero() {
		d.Due = l.notLater(event.PublishedAt)
	}
	if d.Webhook = &w.Webhook; w.err != nil {
		d.Webhook, d.Err = &driver.Webhook{ID: ref.WebhookID}, w.err
	}
}

// notLater returns the due time of a delivery that has been pending since its publication: the
// time of publication, but at most now. The time of publication may be in the future if the clock
// was set back since, or if the event was imported from a store whose clock was ahead.
func (l *loader) notLater(published time.Time) time.Time {
	if published.After(l.now) {
		return l.now
	}
	return published
}

// age returns the age of an event, less the time that a clock jump may have added, see
// [engine.Doubt].
func (s *engine) age(published time.Time) time.Duration {
	if published.IsZero() {
		return 0
	}
	return max(0, s.clock.Time().Sub(published)-s.clock.Doubt())
}

// readPending copies the delivery's pending state to d, and reports whether the delivery is
// pending.
func (l *loader) readPending(ref driver.DeliveryRef, d *driver.LoadedDelivery) bool {
	p, pending := l.log.Pending(ref, l.now)
	d.Due, d.Attempts, d.Before = p.Due, p.Attempts, p.Before
	return pending
}

// Settle implements [driver.Deliveries].
func (s *engine) Settle(ctx context.Context, results []driver.AttemptResult, health []driver.HealthChange) (settled driver.Settled, err error) {
	err = s.writer.Run(ctx, func(b *batch) error {
		settled, err = s.settle(b, results, health)
		return err
	})
	if err != nil {
		return driver.Settled{}, err
	}
	return settled, nil
}

func (s *engine) settle(b *batch, results []driver.AttemptResult, health []driver.HealthChange) (settled driver.Settled, err error) {
	settled.Stale, err = b.log.Settle(results, func(webhook string) bool {
		w := s.webhookRows.inStep(b.Tx, webhook)
		return w != nil && !b.isErasing(w.Account)
	})
	if err != nil {
		return settled, err
	}
	for i := range health {
		counts, err := s.changeHealth(b, &health[i])
		if err != nil {
			return settled, err
		}
		if !counts {
			settled.Conflicts = append(settled.Conflicts, i)
		}
	}
	return settled, nil
}

// changeHealth stores a webhook's health and audit entries, unless the webhook has changed since
// the version on which the change is based. It reports whether it stored them.
func (s *engine) changeHealth(b *batch, change *driver.HealthChange) (counts bool, err error) {
	now := s.webhookRows.inStep(b.Tx, change.WebhookID)
	if now == nil || now.err != nil || now.Account != change.Account || now.Version != change.Version || b.isErasing(now.Account) {
		return false, nil
	}
	for _, n := range change.AuditEntries {
		if err := b.tell(n); err != nil {
			return false, err
		}
	}
	webhook := now.Webhook
	webhook.WebhookHealth = change.Health
	return true, s.putWebhook(b, &webhook)
}
