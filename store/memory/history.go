package memory

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
)

// ListDeliveries implements [driver.WebhookStore]. It scans all events.
func (s *Store) ListDeliveries(ctx context.Context, account, webhookID string, query driver.DeliveryQuery) (driver.DeliveryPage, error) {
	if err := s.begin(ctx); err != nil {
		return driver.DeliveryPage{}, err
	}
	defer s.mu.Unlock()
	if s.webhooks.find(account, webhookID) == nil {
		return driver.DeliveryPage{}, apierr.ErrNotFound
	}
	log := s.log
	if query.After != "" {
		after, _ := s.cursors.Decode(query.After)
		log = log[:s.search(after)]
	}
	var page driver.DeliveryPage
	var last uint64
	for _, e := range slices.Backward(log) {
		d := e.find(webhookID)
		if d == nil || !query.Matches(&d.Delivery) {
			continue
		}
		if len(page.Deliveries) == query.Limit {
			page.Next = s.cursors.Encode(last)
			break
		}
		page.Deliveries = append(page.Deliveries, d.copied())
		last = e.seq
	}
	return page, nil
}

// search returns the index in the log of the first event whose number is at least seq.
func (s *Store) search(seq uint64) int {
	i, _ := slices.BinarySearchFunc(s.log, seq, func(e *event, seq uint64) int { return cmp.Compare(e.seq, seq) })
	return i
}

// A recovery is the stored form of a [driver.Recovery].
type recovery struct {
	driver.Recovery
	next uint64 // number of the event with which the recovery continues
}

// CreateRecovery implements [driver.WebhookStore].
func (s *Store) CreateRecovery(ctx context.Context, r driver.Recovery, entry audit.Entry) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if s.webhooks.find(r.Account, r.WebhookID) == nil {
		return apierr.ErrNotFound
	}
	if slices.ContainsFunc(s.recoveries, func(other *recovery) bool { return other.ID == r.ID }) {
		return apierr.ErrExists
	}
	if slices.ContainsFunc(s.recoveries, func(other *recovery) bool { return other.WebhookID == r.WebhookID && !other.Done }) {
		return driver.ErrRecovering
	}
	r.States = slices.Clone(r.States)
	if r.To.IsZero() {
		r.To = s.publication().Add(time.Millisecond)
	}
	r.From, r.To, r.CreatedAt = stored(r.From), stored(r.To), stored(r.CreatedAt)
	s.keepRecovery(&recovery{Recovery: r})
	s.entries.add(entry)
	return nil
}

// keepRecovery adds a recovery, and removes the oldest recovery of its webhook if there are more
// than MaxRecoveries.
func (s *Store) keepRecovery(r *recovery) {
	s.recoveries = append(s.recoveries, r)
	ofWebhook := func(other *recovery) bool { return other.WebhookID == r.WebhookID }
	n := 0
	for _, other := range s.recoveries {
		if ofWebhook(other) {
			n++
		}
	}
	if n > driver.MaxRecoveries {
		i := slices.IndexFunc(s.recoveries, ofWebhook)
		s.recoveries = slices.Delete(s.recoveries, i, i+1)
	}
}

// RecoveryByID implements [driver.WebhookStore].
func (s *Store) RecoveryByID(ctx context.Context, account, id string) (driver.Recovery, error) {
	if err := s.begin(ctx); err != nil {
		return driver.Recovery{}, err
	}
	defer s.mu.Unlock()
	for _, r := range s.recoveries {
		if r.Account == account && r.ID == id {
			found := r.Recovery
			found.States = slices.Clone(r.States)
			return found, nil
		}
	}
	return driver.Recovery{}, apierr.ErrNotFound
}

// AdvanceRecovery implements [driver.WebhookStore].
func (s *Store) AdvanceRecovery(ctx context.Context, limit int) (advanced bool, err error) {
	if err := s.begin(ctx); err != nil {
		return false, err
	}
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.recoveries, func(r *recovery) bool { return !r.Done })
	if i < 0 {
		return false, nil
	}
	r := s.recoveries[i]
	s.advance(r, limit)
	s.recoveries = append(slices.Delete(s.recoveries, i, i+1), r) // round robin
	return true, nil
}

func (s *Store) advance(r *recovery, limit int) {
	webhook := s.webhooks.find(r.Account, r.WebhookID)
	if webhook == nil {
		r.Done = true
		return
	}
	query := driver.DeliveryQuery{States: r.States, Resources: webhook.Resources, From: r.From, To: r.To}
	now, rest := time.Now(), s.log[s.search(r.next):]
	var due []driver.PendingDelivery
	for _, e := range rest[:min(limit, len(rest))] {
		r.next = e.seq + 1
		d := e.find(r.WebhookID)
		switch {
		case d == nil || e.noBody || !query.Matches(&d.Delivery):
		case d.State != driver.Pending:
			d.makePending(now, true, false)
			due = append(due, s.report(d))
		case d.due.After(now):
			d.makeDue(now)
			due = append(due, s.report(d))
		}
	}
	r.Recovered += len(due)
	s.added(due...)
	r.Done = len(rest) <= limit
}

// Now implements [driver.WebhookStore].
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	if err := s.begin(ctx); err != nil {
		return time.Time{}, err
	}
	defer s.mu.Unlock()
	return s.clock.Time(), nil
}

// Purge implements [driver.WebhookStore].
func (s *Store) Purge(ctx context.Context, purge driver.Purge) (more bool, err error) {
	if err := s.begin(ctx); err != nil {
		return false, err
	}
	defer s.mu.Unlock()
	purge = purge.Doubting(s.clock.Doubt())
	purged := 0
	var ended []driver.DeliveryRef
	for _, e := range s.log {
		if purged == purge.Limit {
			more = true
			break
		}
		if s.purge(e, &purge, &ended) {
			purged++
		}
	}
	if s.feed != nil && len(ended) > 0 {
		s.feed.Ended(ended)
	}
	s.log = slices.DeleteFunc(s.log, func(e *event) bool {
		old := e.noBody && len(e.deliveries) == 0 && s.events[ref{e.Account, e.ID}] != e
		if old {
			delete(s.forgotten, forgottenOf(e.Account, e.ID, e.published))
		}
		return old
	})
	s.recoveries = slices.DeleteFunc(s.recoveries, func(r *recovery) bool {
		return r.Done && r.CreatedAt.Before(purge.Attempts)
	})
	more = s.purgeDedupKeys(purge.DedupKeys, purge.Limit-purged) || more
	return s.entries.purge(purge.AuditEntries, purge.Limit, &s.clock) || more, nil
}

// purge removes the expired parts of an event, and reports whether it removed any. It appends the
// deliveries that it ends to ended.
func (s *Store) purge(e *event, purge *driver.Purge, ended *[]driver.DeliveryRef) (removed bool) {
	if e.published.Before(purge.Payloads) && !e.noBody {
		e.Body, e.noBody, removed = nil, true, true
	}
	for _, d := range slices.Clone(e.deliveries) {
		if e.noBody && d.State == driver.Pending {
			d.State, d.NextAttemptAt = driver.Dead, time.Time{}
			d.Attempts = append(d.Attempts, driver.ExpiredAttempt(d.made()+1, time.Now()))
			*ended = append(*ended, d.ref())
			removed = true
		}
		if e.published.Before(purge.Attempts) && d.State != driver.Pending {
			s.remove(d)
			removed = true
		}
	}
	if name := (ref{e.Account, e.ID}); e.published.Before(purge.EventIDs) && s.events[name] == e {
		delete(s.events, name)
		s.forgotten[forgottenOf(e.Account, e.ID, e.published)] = true
		removed = true
	}
	return removed
}
