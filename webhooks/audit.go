package webhooks

import (
	"context"
	"slices"
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/id"
)

// An entryMaker makes audit entries of what happens to webhooks.
type entryMaker struct {
	ids    id.Generator
	now    func() time.Time
	notify bool
}

// of returns the audit entry of an action at a webhook, as that is then. Its ID is made when it is
// called: where the order matters, within the store's step.
func (m *entryMaker) of(ctx context.Context, action audit.Action, w *Webhook) audit.Entry {
	n := audit.Of(ctx, w.Account, action, audit.Target{Kind: audit.TargetWebhook, ID: w.ID, Name: origin(w.URL)})
	n.At = m.now().UTC().Truncate(time.Millisecond)
	n.ID = m.ids.New(id.AuditEntry, n.At)
	n.Pending = m.notify
	return n
}

// byService is of for what the service does by itself.
func (m *entryMaker) byService(w *Webhook, action audit.Action) audit.Entry {
	n := m.of(serviceActs, action, w)
	n.Since = w.FailingSince
	return n
}

var serviceActs = audit.WithActor(context.Background(), audit.Actor{Kind: audit.ActorService})

// change returns the audit entry of a change of a webhook on request, or the zero Entry if it is
// as it was.
func (m *entryMaker) change(ctx context.Context, before, after *Webhook) audit.Entry {
	if !before.Secret.Equal(after.Secret) {
		n := m.of(ctx, audit.WebhookRotated, before)
		n.Until = after.PreviousSecretExpiresAt
		return n
	}
	changed := before.changed(after)
	if len(changed) == 0 {
		return audit.Entry{}
	}
	n := m.of(ctx, audit.WebhookChanged, before)
	n.Changed = changed
	if before.Active != after.Active {
		n.Turned = "off"
		if after.Active {
			n.Turned = "on"
		}
	}
	return n
}

// changed returns the names of the fields that after has another value of.
func (w *Webhook) changed(after *Webhook) (fields []string) {
	for _, field := range []struct {
		name string
		same bool
	}{
		{"url", w.URL == after.URL},
		{"events", slices.Equal(w.Events, after.Events)},
		{"active", w.Active == after.Active},
		{"held", w.Held == after.Held},
		{"balanceThreshold", w.BalanceThreshold == after.BalanceThreshold},
	} {
		if !field.same {
			fields = append(fields, field.name)
		}
	}
	return fields
}

// settlement adds the audit entries of a settlement. The failure that a delivery ends began before
// its attempt was loaded, since attempts are shorter than the time until a warning.
func (m *entryMaker) settlement(s *settlement) {
	switch w := s.Task.Webhook; {
	case s.Deactivate != "" && s.Off == nil:
		n := m.byService(w, audit.WebhookOff)
		n.Reason = string(s.Deactivate)
		s.Off = &n
	case s.delivers() && !w.FailingSince.IsZero() && s.Recovered == nil:
		n := m.byService(w, audit.WebhookRecovered)
		s.Recovered = &n
	}
}

// storeRecovered returns the audit entry that the store could not be written since then, and can
// be again.
func (m *entryMaker) storeRecovered(since time.Time) audit.Entry {
	n := audit.Of(serviceActs, "", audit.StoreRecovered, audit.Target{Kind: audit.TargetStore})
	n.At = m.now().UTC().Truncate(time.Millisecond)
	n.ID = m.ids.New(id.AuditEntry, n.At)
	n.Pending = m.notify
	n.Since, n.Until = since, n.At
	return n
}

// An entryAdder is the part of [audit.Store] that tellRecovered needs.
type entryAdder interface {
	AddAuditEntries(ctx context.Context, list []audit.Entry) (added int, err error)
}

// tellRecovered stores an audit entry that the store has failed, as soon as it takes one: this is
// how a host to which nothing else happens finds out. While claims or settlements fail,
// they do, and nothing has recovered.
func (m *maintainer) tellRecovered(ctx context.Context) (more bool, err error) {
	since, failure := m.halt.failed.Load(), m.halt.activity.write.Load()
	if since == nil && failure != nil { // it failed again while its recovery was told
		since = &failure.at
	}
	store, ok := m.store.(entryAdder)
	if since == nil || !ok || m.halt.activity.claim.Load() != nil || m.failing.Load() {
		return false, nil
	}
	if _, err := store.AddAuditEntries(ctx, []audit.Entry{m.entries.storeRecovered(*since)}); err != nil {
		return false, err
	}
	m.halt.failed.CompareAndSwap(since, nil)
	m.halt.activity.write.CompareAndSwap(failure, nil) // a failure since then stays
	return false, nil
}
