package memory

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

// An event is one that is stored.
type event struct {
	webhooks.Envelope
	matched    int                  // how many deliveries it began with
	deliveries []*webhooks.Delivery // ascending by webhook id
}

// An owed delivery is in the queue, too. One that is not owed is settled.
type owed struct {
	event    *event
	webhook  *webhooks.Webhook
	delivery *webhooks.Delivery
}

// Enqueue implements [webhooks.Store].
func (s *Store) Enqueue(ctx context.Context, envelope webhooks.Envelope) (int, error) {
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	name := ref{envelope.Account, envelope.ID}
	if known := s.events[name]; known != nil {
		return known.matched, nil
	}
	envelope.Timestamp = stored(envelope.Timestamp)
	envelope.Body = bytes.Clone(envelope.Body)
	e := &event{Envelope: envelope}
	now := stored(time.Now())
	for _, r := range s.webhooks[e.Account] {
		if w := r.record; w.Subscribes(e.Type) {
			d := &webhooks.Delivery{EventID: e.ID, WebhookID: w.ID, State: webhooks.Pending, NextAttemptAt: now}
			e.deliveries = append(e.deliveries, d)
			s.lastSeq++
			s.owed[s.lastSeq] = owed{e, w, d}
			s.queue.Add(w.ID, s.lastSeq, now, 0)
		}
	}
	e.matched = len(e.deliveries)
	s.events[name] = e
	return e.matched, nil
}

// ClaimDeliveries implements [webhooks.Store].
func (s *Store) ClaimDeliveries(ctx context.Context, claim webhooks.Claim) ([]webhooks.Task, time.Duration, error) {
	if err := s.begin(ctx); err != nil {
		return nil, 0, err
	}
	defer s.mu.Unlock()
	claimed, wait := s.queue.Claim(time.Now(), claim.Limit, claim.PerWebhook, claim.Lease)
	tasks := make([]webhooks.Task, 0, len(claimed))
	for _, c := range claimed {
		o := s.owed[c.Seq]
		envelope := o.event.Envelope
		envelope.Body = bytes.Clone(envelope.Body)
		tasks = append(tasks, webhooks.Task{Event: envelope, Webhook: copyOf(*o.webhook), Attempt: c.Attempt, Token: c.Token})
	}
	return tasks, wait, nil
}

// SettleDeliveries implements [webhooks.Store].
func (s *Store) SettleDeliveries(ctx context.Context, settlements []webhooks.Settlement) ([]int, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var stale []int
	for i, settlement := range settlements {
		_, seq, current := s.queue.Hold(settlement.Task.Token)
		if !current {
			stale = append(stale, i)
			continue
		}
		s.settle(settlement, seq)
	}
	return stale, nil
}

// settle ends the claim of the delivery with the given number.
func (s *Store) settle(settlement webhooks.Settlement, seq uint64) {
	o, token, attempt := s.owed[seq], settlement.Task.Token, settlement.Attempt
	if settlement.Outcome != webhooks.Release {
		attempt.StartedAt = stored(attempt.StartedAt)
		o.delivery.Attempts = append(o.delivery.Attempts, attempt)
	}
	switch settlement.Outcome {
	case webhooks.Release:
		s.queue.Free(token)
	case webhooks.Retry:
		o.delivery.NextAttemptAt = stored(time.Now().Add(settlement.RetryAfter))
		s.queue.Retry(token, o.delivery.NextAttemptAt, attempt.Number)
	case webhooks.Deliver:
		s.finish(seq, token, webhooks.Delivered)
	case webhooks.GiveUp:
		s.finish(seq, token, webhooks.Dead)
	}
	if settlement.Deactivate {
		o.webhook.Active = false
		s.queue.Pause(o.webhook.ID)
	}
}

// finish makes an owed delivery a settled one.
func (s *Store) finish(seq, token uint64, state webhooks.DeliveryState) {
	d := s.owed[seq].delivery
	d.State, d.NextAttemptAt = state, time.Time{}
	delete(s.owed, seq)
	s.queue.Done(token)
}

// EventDeliveries implements [webhooks.Store].
func (s *Store) EventDeliveries(ctx context.Context, account, eventID string) ([]webhooks.Delivery, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	e := s.events[ref{account, eventID}]
	if e == nil {
		return nil, webhooks.ErrNotFound
	}
	list := make([]webhooks.Delivery, 0, len(e.deliveries))
	for _, d := range e.deliveries {
		copied := *d
		copied.Attempts = slices.Clone(d.Attempts)
		list = append(list, copied)
	}
	return list, nil
}

// remove removes a delivery of the event.
func (e *event) remove(d *webhooks.Delivery) {
	e.deliveries = slices.DeleteFunc(e.deliveries, func(other *webhooks.Delivery) bool { return other == d })
}
