package memory

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/store/queue"
	"github.com/storageapi/storageapi/webhooks"
)

var errNoPayload = errors.New("the event's payload was purged")

// ClaimDeliveries implements [webhooks.Store].
func (s *Store) ClaimDeliveries(ctx context.Context, claim webhooks.Claim) ([]webhooks.Task, time.Duration, error) {
	if err := s.begin(ctx); err != nil {
		return nil, 0, err
	}
	defer s.mu.Unlock()
	claimed, wait := s.queue.Claim(time.Now(), claim)
	tasks := make([]webhooks.Task, 0, len(claimed))
	for _, c := range claimed {
		d := s.deliveries[place{c.Webhook, c.Seq}]
		webhook := copyOf(*s.webhooks.find(d.event.Account, c.Webhook)) // it is there, or nothing is pending for it
		task := webhooks.Task{Event: d.event.EncodedEvent, Webhook: &webhook, Attempt: c.Attempt, Before: c.Before, Token: c.Token, Probe: c.Probe}
		task.Age = s.clock.Time().Add(-s.clock.Doubt()).Sub(d.event.published)
		if d.event.noBody {
			task.Err = errNoPayload
		}
		tasks = append(tasks, task)
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
	var ends []func() // of leases: after what the results say of receivers, which may recover
	for i := range settlements {
		webhook, seq, current := s.queue.Hold(settlements[i].Task.Token)
		if !current {
			if !settlements[i].OnlyReleases() {
				stale = append(stale, i)
			}
			continue
		}
		ends = append(ends, s.settle(&settlements[i], s.deliveries[place{webhook, seq}]))
	}
	for _, end := range ends {
		end()
	}
	return stale, nil
}

// settle records a result. It returns what ends the lease.
func (s *Store) settle(settlement *webhooks.Settlement, d *delivery) (end func()) {
	token, attempt := settlement.Task.Token, settlement.Attempt
	if settlement.Outcome != webhooks.Release {
		attempt.StartedAt = stored(attempt.StartedAt)
		d.Attempts = slices.DeleteFunc(d.Attempts, func(old webhooks.Attempt) bool {
			return old.Number <= attempt.Number-webhooks.MaxAttempts
		})
		d.Attempts = append(d.Attempts, attempt)
	}
	switch settlement.Outcome {
	case webhooks.Release:
		if settlement.RetryAfter > 0 {
			due := time.Now().Add(settlement.RetryAfter)
			end = func() { s.queue.Postpone(token, due) }
		} else {
			end = func() { s.queue.Release(token) }
		}
	case webhooks.Retry:
		due := time.Now().Add(settlement.RetryAfter)
		d.NextAttemptAt, d.first = stored(due), false
		end = func() { s.queue.Retry(token, due, attempt.Number, settlement.Asked) }
	case webhooks.Deliver:
		end = func() { s.queue.Done(token) }
		d.State, d.NextAttemptAt = webhooks.Delivered, time.Time{}
	case webhooks.GiveUp:
		end = func() { s.queue.Done(token) }
		d.State, d.NextAttemptAt = webhooks.Dead, time.Time{}
	}
	w := s.webhooks.find(d.event.Account, d.WebhookID)
	if w.URL != settlement.Task.Webhook.URL {
		return end
	}
	if settlement.Outcome == webhooks.Deliver {
		s.queue.EndRest(w.ID)
		if !w.WarnedAt.IsZero() && settlement.Recovered != nil {
			s.notices.add(*settlement.Recovered)
		}
		w.EndFailing()
		if w.ProvenAt.IsZero() {
			w.ProvenAt = attempt.StartedAt
		}
	}
	if settlement.Fails() {
		w.NoteFailure(d.event.ID, attempt.StartedAt)
	}
	if settlement.Rest > 0 {
		s.queue.Rest(w.ID, time.Now().Add(settlement.Rest))
	}
	if settlement.Deactivate != "" {
		if w.Active && settlement.Off != nil {
			s.notices.add(*settlement.Off)
		}
		w.Active, w.OffReason, w.OffAt = false, settlement.Deactivate, attempt.StartedAt
		s.queue.Pause(w.ID)
	}
	s.queue.SetStanding(w.ID, queue.StandingOf(w))
	return end
}

// Redeliver implements [webhooks.Store].
func (s *Store) Redeliver(ctx context.Context, account, webhookID, eventID string, notice notices.Notice) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	e := s.events[ref{account, eventID}]
	w := s.webhooks.find(account, webhookID)
	if e == nil || e.noBody || w == nil {
		return webhooks.ErrNotFound
	}
	d := e.find(webhookID)
	if d == nil {
		return webhooks.ErrNotFound
	}
	now := time.Now()
	switch {
	case d.State != webhooks.Pending:
		s.addPending(d, w, queue.Pending{Due: now, First: true})
	case s.queue.MakeDue(webhookID, e.seq, now):
		d.NextAttemptAt, d.recovered, d.first = stored(now), false, true
	default:
		return nil
	}
	s.queue.Probe(webhookID)
	s.notices.add(notice)
	return nil
}

// Probe implements [webhooks.Store].
func (s *Store) Probe(ctx context.Context, account, webhookID string) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if s.webhooks.find(account, webhookID) == nil {
		return webhooks.ErrNotFound
	}
	s.queue.Probe(webhookID)
	return nil
}

// LongestWait implements [webhooks.Store].
func (s *Store) LongestWait(ctx context.Context) (time.Duration, error) {
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	return s.queue.LongestWait(time.Now()), nil
}

// Backlog implements [webhooks.Store].
func (s *Store) Backlog(ctx context.Context, webhookID string) (webhooks.Backlog, error) {
	if err := s.begin(ctx); err != nil {
		return webhooks.Backlog{}, err
	}
	defer s.mu.Unlock()
	backlog := s.queue.Backlog(time.Now(), webhookID)
	if webhookID == "" {
		backlog.Held = len(s.webhooksWith(webhooks.Page{Limit: math.MaxInt}, func(w *webhooks.Webhook) bool { return w.Held }))
	}
	return backlog, nil
}
