package webhooks

import (
	"context"
	"slices"
	"time"

	"github.com/storageapi/storageapi/internal/id"
	"github.com/storageapi/storageapi/notices"
)

// A noticeMaker makes notices of what happens to webhooks.
type noticeMaker struct {
	ids    id.Generator
	now    func() time.Time
	notify bool
}

// of returns the notice of an action at a webhook, as that is then. Its ID is made when it is
// called: where the order matters, within the store's step.
func (m *noticeMaker) of(ctx context.Context, action notices.Action, w *Webhook) notices.Notice {
	n := notices.Of(ctx, w.Account, action, notices.Target{Kind: notices.TargetWebhook, ID: w.ID, Name: origin(w.URL)})
	n.At = m.now().UTC().Truncate(time.Millisecond)
	n.ID = m.ids.New(id.Notice, n.At)
	n.Pending = m.notify
	return n
}

// byService is of for what the service does by itself.
func (m *noticeMaker) byService(w *Webhook, action notices.Action) notices.Notice {
	n := m.of(serviceActs, action, w)
	n.Since = w.FailingSince
	return n
}

var serviceActs = notices.WithActor(context.Background(), notices.Actor{Kind: notices.ActorService})

// change returns the notice of a change of a webhook on request, or the zero Notice if it is
// as it was.
func (m *noticeMaker) change(ctx context.Context, before, after *Webhook) notices.Notice {
	if !before.Secret.Equal(after.Secret) {
		n := m.of(ctx, notices.WebhookRotated, before)
		n.Until = after.PreviousSecretExpiresAt
		return n
	}
	changed := before.changed(after)
	if len(changed) == 0 {
		return notices.Notice{}
	}
	n := m.of(ctx, notices.WebhookChanged, before)
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

// settlement adds the notices of a settlement. The failing that a delivery ends has begun before
// its attempt was loaded, for an attempt is shorter than what leads to a warning.
func (m *noticeMaker) settlement(s *settlement) {
	switch w := s.Task.Webhook; {
	case s.Deactivate != "" && s.Off == nil:
		n := m.byService(w, notices.WebhookOff)
		n.Reason = string(s.Deactivate)
		s.Off = &n
	case s.delivers() && !w.FailingSince.IsZero() && s.Recovered == nil:
		n := m.byService(w, notices.WebhookRecovered)
		s.Recovered = &n
	}
}

// storeRecovered returns the notice that the store could not be written since then, and can
// be again.
func (m *noticeMaker) storeRecovered(since time.Time) notices.Notice {
	n := notices.Of(serviceActs, "", notices.StoreRecovered, notices.Target{Kind: notices.TargetStore})
	n.At = m.now().UTC().Truncate(time.Millisecond)
	n.ID = m.ids.New(id.Notice, n.At)
	n.Pending = m.notify
	n.Since, n.Until = since, n.At
	return n
}

// A noticeAdder is the part of [notices.Store] that tellRecovered needs.
type noticeAdder interface {
	AddNotices(ctx context.Context, list []notices.Notice) (added int, err error)
}

// tellRecovered stores a notice that the store has failed, as soon as it takes one: this is
// how a host to which nothing else happens finds out. While claims or settlements fail,
// they do, and nothing has recovered.
func (m *maintainer) tellRecovered(ctx context.Context) (more bool, err error) {
	since, failure := m.halt.failed.Load(), m.halt.activity.write.Load()
	if since == nil && failure != nil { // it failed again while its recovery was told
		since = &failure.at
	}
	store, ok := m.store.(noticeAdder)
	if since == nil || !ok || m.halt.activity.claim.Load() != nil || m.failing.Load() {
		return false, nil
	}
	if _, err := store.AddNotices(ctx, []notices.Notice{m.notices.storeRecovered(*since)}); err != nil {
		return false, err
	}
	m.halt.failed.CompareAndSwap(since, nil)
	m.halt.activity.write.CompareAndSwap(failure, nil) // of one that came meanwhile nothing is known
	return false, nil
}
