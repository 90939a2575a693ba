package memory

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
)

var errNoPayload = errors.New("the event's payload was purged")

// maxReported is the maximum number of deliveries in one report.
const maxReported = 1000

// Deliver implements [driver.Deliveries].
func (s *Store) Deliver(ctx context.Context, to driver.Scheduler) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case s.delivering <- struct{}{}:
		defer func() { <-s.delivering }()
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closing:
		return store.ErrClosed
	}
	pending := s.follow(to)
	defer s.follow(nil)
	for page := range slices.Chunk(pending, maxReported) {
		to.Add(page)
	}
	to.Trouble(nil)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closing:
		return store.ErrClosed
	}
}

// follow registers the scheduler for reports of later steps, and returns the pending deliveries.
func (s *Store) follow(to driver.Scheduler) (pending []driver.PendingDelivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.feed = to; to == nil {
		return nil
	}
	for _, e := range s.log {
		for _, d := range e.deliveries {
			if d.State == driver.Pending {
				pending = append(pending, s.report(d))
			}
		}
	}
	return pending
}

// report returns the [driver.PendingDelivery] that reports d.
func (s *Store) report(d *delivery) driver.PendingDelivery {
	return driver.PendingDelivery{
		Number: d.event.seq, Webhook: s.webhooks.find(d.event.Account, d.WebhookID), // not nil, because a pending delivery has a webhook
		Due: d.due, Attempts: d.made(), Before: d.before, Recovered: d.recovered, First: d.first,
	}
}

// added reports new pending deliveries to the scheduler.
func (s *Store) added(list ...driver.PendingDelivery) {
	if s.feed != nil && len(list) > 0 {
		s.feed.Add(list)
	}
}

// Load implements [driver.Deliveries].
func (s *Store) Load(ctx context.Context, refs []driver.DeliveryRef) ([]driver.LoadedDelivery, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	now, found := s.clock.Time().Add(-s.clock.Doubt()), make([]driver.LoadedDelivery, len(refs))
	for i, r := range refs {
		d := s.deliveries[r]
		if d == nil || d.State != driver.Pending {
			continue
		}
		w := s.webhooks.find(d.event.Account, r.WebhookID)
		found[i] = driver.LoadedDelivery{
			State: driver.Passive, Webhook: w, Age: now.Sub(d.event.published),
			Attempts: d.made(), Before: d.before, Due: d.due,
		}
		if !w.Claimable() {
			continue
		}
		found[i].State, found[i].Event = driver.Ready, d.event.EncodedEvent
		if d.event.noBody {
			found[i].Err = errNoPayload
		}
	}
	return found, nil
}

// Settle implements [driver.Deliveries].
func (s *Store) Settle(ctx context.Context, results []driver.AttemptResult, health []driver.HealthChange) (driver.Settled, error) {
	var settled driver.Settled
	if err := s.begin(ctx); err != nil {
		return settled, err
	}
	defer s.mu.Unlock()
	for i := range results {
		if !s.settle(&results[i]) {
			settled.Stale = append(settled.Stale, i)
		}
	}
	for i := range health {
		if !s.setHealth(&health[i]) {
			settled.Conflicts = append(settled.Conflicts, i)
		}
	}
	return settled, nil
}

func (s *Store) settle(r *driver.AttemptResult) bool {
	d := s.deliveries[r.DeliveryRef]
	if d == nil || d.State != driver.Pending || d.made() >= r.Attempt.Number {
		return false
	}
	attempt := r.Attempt
	attempt.StartedAt = stored(attempt.StartedAt)
	d.Attempts = slices.DeleteFunc(d.Attempts, func(old driver.Attempt) bool {
		return old.Number <= attempt.Number-driver.MaxAttempts
	})
	d.Attempts = append(d.Attempts, attempt)
	switch r.Effect {
	case driver.Retry:
		d.first = false
		d.makeDue(time.Now().Add(r.RetryAfter))
	case driver.Deliver:
		d.State, d.NextAttemptAt = driver.Delivered, time.Time{}
	case driver.GiveUp:
		d.State, d.NextAttemptAt = driver.Dead, time.Time{}
	}
	return true
}

func (s *Store) setHealth(h *driver.HealthChange) bool {
	w := s.webhooks.find(h.Account, h.WebhookID)
	if w == nil || w.Version != h.Version {
		return false
	}
	changed := *w
	changed.WebhookHealth = h.Health
	s.change(changed)
	for _, n := range h.AuditEntries {
		s.entries.add(n)
	}
	return true
}

// Redeliver implements [driver.WebhookStore].
func (s *Store) Redeliver(ctx context.Context, account, webhookID, eventID string, entry audit.Entry) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	e := s.events[ref{account, eventID}]
	if e == nil || e.noBody || s.webhooks.find(account, webhookID) == nil {
		return apierr.ErrNotFound
	}
	d := e.find(webhookID)
	if d == nil {
		return apierr.ErrNotFound
	}
	if pending := d.State == driver.Pending; pending {
		d.recovered, d.first = false, true
		d.makeDue(time.Now())
		if s.feed != nil {
			s.feed.Nudge(d.ref())
		}
	} else {
		d.makePending(time.Now(), false, true)
		s.added(s.report(d))
	}
	s.probe(webhookID)
	s.entries.add(entry)
	return nil
}

// Probe implements [driver.WebhookStore].
func (s *Store) Probe(ctx context.Context, account, webhookID string) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if s.webhooks.find(account, webhookID) == nil {
		return apierr.ErrNotFound
	}
	s.probe(webhookID)
	return nil
}

func (s *Store) probe(webhookID string) {
	if s.feed != nil {
		s.feed.Probe(webhookID)
	}
}

// Unreported implements [driver.Deliveries]. It scans all deliveries.
func (s *Store) Unreported(ctx context.Context, webhookID string) (driver.Backlog, error) {
	var backlog driver.Backlog
	if err := s.begin(ctx); err != nil {
		return backlog, err
	}
	defer s.mu.Unlock()
	if webhookID == "" {
		for _, rows := range s.webhooks {
			for _, row := range rows {
				if row.record.Held {
					backlog.Held++
				}
			}
		}
	}
	if s.feed != nil {
		return backlog, nil
	}
	now := time.Now()
	for r, d := range s.deliveries {
		if d.State != driver.Pending || webhookID != "" && webhookID != r.WebhookID {
			continue
		}
		backlog.Pending++
		first := backlog.OldestDue.IsZero() || d.due.Before(backlog.OldestDue)
		w := s.webhooks.find(d.event.Account, r.WebhookID)
		if first && !d.due.After(now) && w.Claimable() && !w.Paused(now) {
			backlog.OldestDue = stored(d.due)
		}
	}
	return backlog, nil
}

// Ping implements [driver.Deliveries].
func (s *Store) Ping(ctx context.Context) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	s.mu.Unlock()
	return nil
}
