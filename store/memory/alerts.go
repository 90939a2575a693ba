package memory

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/store/driver"
)

// An alert is the state of an account's series.
type alert struct {
	state []byte
	due   bool
}

// UpdateAlert implements [driver.AlertStore].
func (s *Store) UpdateAlert(ctx context.Context, account, series string, change func(*driver.AlertStep) error) (int, error) {
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	name := ref{account, series}
	step := driver.AlertStep{Webhooks: func() []driver.Webhook { return s.webhooksOf(account) }}
	a := s.alerts[name]
	if a != nil {
		step.State, step.Due = a.state, a.due
	}
	if err := change(&step); err != nil {
		return 0, err
	}
	switch {
	case len(step.State) == 0:
		delete(s.alerts, name)
	case a == nil || a.due || !bytes.Equal(a.state, step.State):
		s.alerts[name] = &alert{state: bytes.Clone(step.State)}
	}
	deliveries := 0
	for _, event := range step.Events {
		if pending, isNew := s.enqueue(event.EncodedEvent, event.WebhookID); isNew {
			deliveries += pending
		}
	}
	return deliveries, nil
}

// webhooksOf returns copies of all webhooks of the account.
func (s *Store) webhooksOf(account string) []driver.Webhook {
	list := make([]driver.Webhook, 0, len(s.webhooks[account]))
	for _, r := range s.webhooks[account] {
		list = append(list, copyOf(*r.record))
	}
	return list
}

// markDue marks all series of the account as due. It scans all alerts.
func (s *Store) markDue(account string) {
	for name, a := range s.alerts {
		if name.account == account {
			a.due = true
		}
	}
}

// DueAlerts implements [driver.AlertStore]. It scans all alerts.
func (s *Store) DueAlerts(ctx context.Context, limit int) ([]driver.AlertSeries, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var due []driver.AlertSeries
	for name, a := range s.alerts {
		if a.due && len(due) < limit {
			due = append(due, driver.AlertSeries{Account: name.account, Name: name.id})
		}
	}
	return due, nil
}

// UpdateScan implements [driver.AlertStore].
func (s *Store) UpdateScan(ctx context.Context, change func([]byte) ([]byte, error)) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	state, err := change(bytes.Clone(s.scanState))
	if err == nil {
		s.scanState = bytes.Clone(state)
	}
	return err
}

// A dedupKey is a stored deduplication key.
type dedupKey struct {
	account, key string
	until        int64 // Unix time in milliseconds
}

// UnseenKeys implements [driver.AlertStore].
func (s *Store) UnseenKeys(ctx context.Context, account string, dedupKeys []driver.DedupKey) ([]int, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var fresh []int
	for i, n := range dedupKeys {
		if !s.dedupKeys[dedupKey{account, n.Key, n.Until.UnixMilli()}] {
			fresh = append(fresh, i)
		}
	}
	return fresh, nil
}

// EnqueueOnce implements [driver.AlertStore].
func (s *Store) EnqueueOnce(ctx context.Context, event driver.EncodedEvent, dedupKeys []driver.DedupKey) (int, error) {
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	for _, n := range dedupKeys {
		if s.dedupKeys[dedupKey{event.Account, n.Key, n.Until.UnixMilli()}] {
			return 0, apierr.ErrExists
		}
	}
	for _, n := range dedupKeys {
		s.dedupKeys[dedupKey{event.Account, n.Key, n.Until.UnixMilli()}] = true
	}
	deliveries, _ := s.enqueue(event, "")
	return deliveries, nil
}

// purgeDedupKeys removes at most limit deduplication keys whose until is before the given time, and
// reports whether more such keys remain.
func (s *Store) purgeDedupKeys(before time.Time, limit int) (more bool) {
	var old []dedupKey
	for n := range s.dedupKeys {
		if n.until < before.UnixMilli() {
			old = append(old, n)
		}
	}
	slices.SortFunc(old, func(a, b dedupKey) int { return cmp.Compare(a.until, b.until) })
	for _, n := range old[:min(limit, len(old))] {
		delete(s.dedupKeys, n)
	}
	return len(old) > limit
}
