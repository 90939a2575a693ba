package memory

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

// An alert is what is kept of one, if that is anything.
type alert struct {
	state []byte
	due   bool
}

// UpdateAlert implements [webhooks.Store].
func (s *Store) UpdateAlert(ctx context.Context, account string, metric webhooks.Metric, change func(*webhooks.AlertStep) error) (int, error) {
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	name := ref{account, string(metric)}
	step := webhooks.AlertStep{Webhooks: func() []webhooks.Webhook { return s.webhooksOf(account) }}
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
		if owed, isNew := s.enqueue(event.Envelope, event.WebhookID); isNew {
			deliveries += owed
		}
	}
	return deliveries, nil
}

// webhooksOf returns copies of all webhooks of the account.
func (s *Store) webhooksOf(account string) []webhooks.Webhook {
	list := make([]webhooks.Webhook, 0, len(s.webhooks[account]))
	for _, r := range s.webhooks[account] {
		list = append(list, copyOf(*r.record))
	}
	return list
}

// alarm makes the account's alert of its balance due.
func (s *Store) alarm(account string) {
	if a := s.alerts[ref{account, string(webhooks.MetricBalance)}]; a != nil {
		a.due = true
	}
}

// DueAlerts implements [webhooks.Store]. It looks through all alerts.
func (s *Store) DueAlerts(ctx context.Context, limit int) ([]string, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var accounts []string
	for name, a := range s.alerts {
		if a.due && len(accounts) < limit {
			accounts = append(accounts, name.account)
		}
	}
	return accounts, nil
}

// A notice is one that is kept.
type notice struct {
	account, key string
	until        int64 // milliseconds
}

// NewNotices implements [webhooks.Store].
func (s *Store) NewNotices(ctx context.Context, account string, notices []webhooks.Notice) ([]int, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var fresh []int
	for i, n := range notices {
		if !s.notices[notice{account, n.Key, n.Until.UnixMilli()}] {
			fresh = append(fresh, i)
		}
	}
	return fresh, nil
}

// EnqueueNotices implements [webhooks.Store].
func (s *Store) EnqueueNotices(ctx context.Context, event webhooks.Envelope, notices []webhooks.Notice) (int, error) {
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	for _, n := range notices {
		if s.notices[notice{event.Account, n.Key, n.Until.UnixMilli()}] {
			return 0, webhooks.ErrExists
		}
	}
	for _, n := range notices {
		s.notices[notice{event.Account, n.Key, n.Until.UnixMilli()}] = true
	}
	owed, _ := s.enqueue(event, "")
	return owed, nil
}

// purgeNotices removes notices whose Until is before that, at most limit, and
// reports whether there are more.
func (s *Store) purgeNotices(before time.Time, limit int) (more bool) {
	var old []notice
	for n := range s.notices {
		if n.until < before.UnixMilli() {
			old = append(old, n)
		}
	}
	slices.SortFunc(old, func(a, b notice) int { return cmp.Compare(a.until, b.until) })
	for _, n := range old[:min(limit, len(old))] {
		delete(s.notices, n)
	}
	return len(old) > limit
}
