package webhooks

import (
	"context"
	"slices"
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/fields"
	"github.com/storageapi/storageapi/internal/id"
	"github.com/storageapi/storageapi/internal/listed"
	"github.com/storageapi/storageapi/store/driver"
)

// An entryMaker makes audit entries about webhooks.
type entryMaker struct {
	ids    id.Generator
	now    func() time.Time
	notify bool
}

// of returns the audit entry for an action on a webhook in its current state. The ID depends on
// the time of the call, so call it within the store's transaction if the order of entries matters.
func (m *entryMaker) of(ctx context.Context, action audit.Action, w *Webhook) audit.Entry {
	n := audit.Of(ctx, w.Account, action, audit.Target{Kind: audit.TargetWebhook, ID: w.ID, Name: origin(w.URL)})
	n.At = m.now().UTC().Truncate(time.Millisecond)
	n.ID = m.ids.New(id.AuditEntry, n.At)
	n.Pending = m.notify
	return n
}

// byService is like of, for actions of the service itself.
func (m *entryMaker) byService(w *Webhook, action audit.Action) audit.Entry {
	n := m.of(serviceActs, action, w)
	n.Since = w.FailingSince
	return n
}

var serviceActs = audit.WithActor(context.Background(), audit.Actor{Kind: audit.ActorService})

// change returns the audit entry for a requested change to a webhook, or the zero Entry if nothing
// changed.
func (m *entryMaker) change(ctx context.Context, before, after *Webhook) audit.Entry {
	if !before.Secret.Equal(after.Secret) {
		n := m.of(ctx, audit.WebhookRotated, before)
		n.Until = after.PreviousSecretExpiresAt
		return n
	}
	changed := fields.Changed((*listed.Webhook)(before), (*listed.Webhook)(after))
	if !slices.Contains(changed, "headers") && !slices.Equal(before.Headers, after.Headers) { // only secret values differ
		changed = append(changed, "headers")
	}
	if len(changed) == 0 {
		return audit.Entry{}
	}
	n := m.of(ctx, audit.WebhookChanged, before)
	n.Changed = changed
	if slices.Contains(changed, "pausedUntil") {
		n.Turned = "resumed"
		if !after.PausedUntil.IsZero() {
			n.Turned = "paused"
		}
		if after.PausedUntil.Before(driver.NoEnd) {
			n.Until = after.PausedUntil
		}
	}
	if before.Active != after.Active {
		n.Turned = "off"
		if after.Active {
			n.Turned = "on"
		}
	}
	return n
}

// settlement adds the audit entries that may have to be stored with the settlement. Recovered is
// stored only if the host was warned of the failures. The warning comes later than any attempt
// lasts, so FailingSince is then already set in the attempt's copy of the webhook.
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

// storeRecovered returns the audit entry for a store that is writable again after failing since
// the given time.
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

// tellRecovered stores an audit entry about the store's failure as soon as the store is writable.
// Without other activity, only this write shows that the store has recovered. tellRecovered does
// nothing while claims or settlements fail.
func (m *maintainer) tellRecovered(ctx context.Context) (more bool, err error) {
	since, failure := m.halt.failed.Load(), m.halt.activity.write.Load()
	if since == nil && failure != nil { // the store failed again while its recovery was recorded
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
	m.halt.activity.write.CompareAndSwap(failure, nil) // keep a failure that happened meanwhile
	return false, nil
}
