package simulation_test

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks"
)

// soon is the maximum delay until a healthy receiver gets an event, regardless of other receivers.
const soon = 2 * time.Second

// punctual checks that an attempt is not late. It skips attempts whose due time is not certain.
func (w *world) punctual(d *delivery, now time.Duration) {
	if d.attempts > 0 || !isSteady(d.webhook) {
		return
	}
	acked, ok := w.events.acknowledged(d.event)
	since, calm := w.calmSince()
	if from := max(acked, since); ok && calm && now-from > soon {
		w.breach("a receiver that is well is not held up", d.about(), "%s is attempted for %s only %v after %s", d.event, d.webhook, now-from, clock(from))
	}
}

// arrivesInTime checks that the first request of an attempt is not late, unless that is uncertain.
func (w *world) arrivesInTime(le *load, host string, about []string) {
	since, calm := w.calmSince()
	if took := w.now() - le.at; isSteady(host) && calm && since <= le.at && took > soon {
		w.breach("a receiver that is well is not held up", about, "%s gets what was loaded for it only %v later", host, took)
	}
}

// isSteady reports whether a name is the name of a steady webhook.
func isSteady(webhook string) bool { return webhook[0] == 's' }

// judge checks the whole state after all faults have ended.
func (w *world) judge() {
	w.truth(func(ctx context.Context, s store.Store) {
		for _, a := range w.accounts {
			a.clients.judge(ctx, s)
			a.subscriber.judge(ctx, s)
			a.publisher.judge()
			a.judgeAuditEntries(ctx, s)
			a.judgeExplanations(ctx, s)
		}
		w.leaver.judge(ctx, s)
		w.flood.judge(ctx, s)
		for _, e := range w.events.list {
			w.judgeEvent(ctx, s, e)
		}
	})
}

// judge checks that exactly the expected keys exist.
func (c *clients) judge(ctx context.Context, s store.Store) {
	list, err := s.ListKeys(ctx, c.account.id, driver.ListQuery{Limit: 1000})
	if err != nil {
		c.world.breach("the store can be asked", nil, "ListKeys: %v", err)
	}
	there := make(map[string]apikeys.Key)
	for _, k := range list {
		there[k.ID] = k
	}
	for _, k := range c.keys {
		switch now, ok := there[k.id]; {
		case k.deleted && ok:
			c.world.breach("acknowledged is done", []string{k.name}, "%s was deleted, and is there again", k.name)
		case !k.deleted && !ok:
			c.world.breach("acknowledged is done", []string{k.name}, "%s is gone", k.name)
		case ok && (now.Name != k.name || now.Disabled != k.disabled || !k.are(&now)):
			c.world.breach("acknowledged is done", []string{k.name}, "%s is %+v, want %+v", k.name, now, k)
		}
	}
}

// judgeAuditEntries checks that each creation and deletion of a key or webhook has one audit entry,
// even if its outcome was unknown to the caller, and that there are no other such entries.
func (a *account) judgeAuditEntries(ctx context.Context, s store.Store) {
	there := make(map[string]bool)
	keys, err := s.ListKeys(ctx, a.id, driver.ListQuery{Limit: 1000})
	for _, key := range keys {
		there[key.ID] = true
	}
	hooks, err2 := s.ListWebhooks(ctx, a.id, driver.ListQuery{Limit: 1000})
	for _, hook := range hooks {
		there[hook.ID] = true
	}
	created, deleted := make(map[string]int), make(map[string]int)
	for query := (audit.Query{Limit: 1000}); ; {
		page, err3 := s.ListAuditEntries(ctx, a.id, query)
		if err := errors.Join(err, err2, err3); err != nil {
			a.world.breach("the store can be asked", nil, "for audit entries: %v", err)
			return
		}
		for _, n := range page.Entries {
			switch n.Action {
			case audit.KeyCreated, audit.WebhookCreated:
				created[n.Target.ID]++
			case audit.KeyDeleted, audit.WebhookDeleted:
				deleted[n.Target.ID]++
			}
		}
		if query.After = page.Next; page.Next == "" {
			break
		}
	}
	for id := range there {
		if created[id] == 0 {
			a.world.breach("no change without its line", nil, "%s was created, and nothing says so", id)
		}
	}
	for id, n := range created {
		if want := 1 - deleted[id]; n != 1 || want < 0 || there[id] != (want == 1) {
			a.world.breach("no line without its change", nil, "%s was created %d times and deleted %d times as told, and is there: %v", id, n, deleted[id], there[id])
		}
		delete(deleted, id)
	}
	for id := range deleted {
		a.world.breach("no change without its line", nil, "%s was deleted, and nothing says that it was created", id)
	}
}

// judge checks that exactly the expected webhooks exist, and that only disabled webhooks have
// pending deliveries.
func (s *subscriber) judge(ctx context.Context, kept store.Store) {
	there := make(map[string]*webhooks.Webhook)
	for _, w := range s.stored() {
		there[w.ID] = &w
	}
	for _, k := range s.hooks {
		now := there[k.id]
		switch {
		case k.deleted && now != nil:
			s.world.breach("acknowledged is done", []string{k.name}, "%s was deleted, and is there again", k.name)
			continue
		case !k.deleted && now == nil:
			s.world.breach("acknowledged is done", []string{k.name}, "%s is gone", k.name)
			continue
		case now == nil:
			continue
		case !k.is(now):
			s.world.breach("acknowledged is done", []string{k.name}, "%s is %+v, want %+v", k.name, now, k)
		}
		owed, err := kept.ListDeliveries(ctx, now.Account, k.id, webhooks.DeliveryQuery{States: []webhooks.DeliveryState{webhooks.Pending}, Limit: 100})
		if n := len(owed.Deliveries); err != nil || now.Active && n > 0 {
			s.world.breach("nothing is owed for ever", []string{k.name}, "%s is owed %d or more events, %v", k.name, n, err)
		}
	}
}

// judge checks that each alert was sent to the steady webhook exactly once.
func (p *publisher) judge() {
	var steady string
	for _, k := range p.account.subscriber.all() {
		if k.steady {
			steady = k.name
		}
	}
	if steady == "" {
		return
	}
	told, falls := make(map[report]int), 0
	for _, got := range p.world.receivers.taken(steady) {
		switch kind := webhooks.EventType(got.kind); kind {
		case alerts.TypeFilesExpiring:
			for _, id := range got.files {
				told[report{kind, id}]++
			}
		case alerts.TypeBalanceLow:
			falls++
		default:
			told[report{kind, got.period}]++
		}
	}
	for _, r := range p.reported {
		most := 1
		if r.kind == alerts.TypeFilesExpiring && p.world.wall.Load() != 0 {
			most = 2 // the clock jump may have caused the alert for the second lead time
		}
		if n := told[r]; n < 1 || n > most {
			p.world.breach("alerts are told once", []string{p.account.id, steady}, "%s of %s was told %d times", r.kind, r.period, n)
		}
	}
	if falls != p.fallen {
		p.world.breach("alerts are told once", []string{p.account.id, steady}, "the balance fell %d times, and was told %d times", p.fallen, falls)
	}
}

// judgeEvent checks the deliveries of an event.
func (w *world) judgeEvent(ctx context.Context, s store.Store, e *event) {
	deliveries, err := s.EventDeliveries(ctx, e.account.id, e.id)
	switch {
	case errors.Is(err, apierr.ErrNotFound) && e.stored:
		w.breach("acknowledged is done", []string{e.id}, "%s was stored, and is gone", e.id)
		return
	case errors.Is(err, apierr.ErrNotFound):
		return
	case err != nil:
		w.breach("the store can be asked", nil, "EventDeliveries: %v", err)
		return
	}
	of := make(map[string]*webhooks.Delivery)
	for i := range deliveries {
		of[deliveries[i].WebhookID] = &deliveries[i]
	}
	for _, k := range e.account.subscriber.all() {
		d := of[k.id]
		if d == nil {
			certain, wanted := e.account.subscriber.wants(k, e.resource, e.from, e.to)
			if certain && wanted && !k.deleted && e.acked {
				w.breach("acknowledged is done", []string{e.id, k.name}, "%s is not owed to %s, which was subscribed", e.id, k.name)
			}
			continue
		}
		w.judgeDelivery(e, k, d)
	}
}

func (w *world) judgeDelivery(e *event, k *hook, d *webhooks.Delivery) {
	about := []string{e.id, k.name}
	if certain, wanted := e.account.subscriber.wants(k, e.resource, e.from, max(e.from, e.to)); certain && !wanted && !k.resent && e.acked && d.State != webhooks.Skipped && len(d.Attempts) == 0 {
		w.breach("only who is subscribed is told", about, "%s is owed to %s, which was off or not subscribed", e.id, k.name)
	}
	numbers := make([]int, len(d.Attempts))
	for i, attempt := range d.Attempts {
		if numbers[i] = attempt.Number; attempt.Class == webhooks.ClassExpired {
			w.breach("a clock that was set ends nothing that is owed", about, "%s expired for %s, though no seed lives for 30 days", e.id, k.name)
		}
	}
	if !slices.IsSorted(numbers) {
		w.breach("attempts are counted right", about, "the attempts of %s for %s are %v", e.id, k.name, numbers)
	}
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	known := w.ledger.deliveries[[2]string{k.name, e.id}]
	arrived := known != nil && known.arrived > 0
	if d.State == webhooks.Delivered && !arrived {
		w.breach("what is delivered has arrived", about, "%s is said to be delivered to %s, which never took it", e.id, k.name)
	}
	made := 0
	if known != nil {
		if made = known.attempts; known.load != nil && known.load.settling {
			made = known.load.attempt // its result was stored, although the call returned an error
		}
	}
	if n := len(numbers); n > 0 && n < driver.MaxAttempts && numbers[n-1] > made {
		w.breach("attempts are counted right", about, "%d attempts of %s for %s are recorded, %d were made", numbers[n-1], e.id, k.name, made)
	}
}
