package storetest_test

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/capability"
	"github.com/storageapi/storageapi/store/driver"
)

// A model is a minimal store that satisfies the contract of driver.Deliveries. It has only the
// methods that RunDeliveries calls, and a single mutex. If fault is set, it breaks one sentence of
// the contract.
type model struct {
	store.Store // nil
	fault       string

	mu         sync.Mutex
	closed     chan struct{}
	delivering chan struct{} // full during Deliver
	feed       driver.Scheduler
	webhooks   map[string]*driver.Webhook
	rows       []*row
	events     map[[2]string]int // number of deliveries by account and ID
	once       map[string]bool
	entries    []audit.Entry
	recoveries []driver.Recovery
	last       uint64
}

type row struct {
	driver.Delivery
	number   uint64
	event    driver.EncodedEvent
	attempts int
	before   int
	gone     bool // the webhook was deleted
}

func newModel(fault string) *model {
	return &model{
		fault: fault, closed: make(chan struct{}), delivering: make(chan struct{}, 1),
		webhooks: map[string]*driver.Webhook{}, events: map[[2]string]int{}, once: map[string]bool{},
	}
}

func (*model) Capabilities() capability.Set { return capability.Set{} }

func (m *model) begin(ctx context.Context) error {
	select {
	case <-m.closed:
		return store.ErrClosed
	default:
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	return nil
}

func (m *model) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-m.closed:
	default:
		close(m.closed)
	}
	return nil
}

func (m *model) pending(r *row) driver.PendingDelivery {
	return driver.PendingDelivery{
		Number: r.number, Webhook: m.webhooks[r.WebhookID], Due: r.NextAttemptAt, Attempts: r.attempts, Before: r.before,
	}
}

// add reports deliveries, unless the model has the given fault.
func (m *model) add(fault string, list ...driver.PendingDelivery) {
	if m.feed != nil && m.fault != fault && len(list) > 0 {
		m.feed.Add(list)
	}
}

func (m *model) enqueue(event driver.EncodedEvent, only string) (added []driver.PendingDelivery, n int) {
	name := [2]string{event.Account, event.ID}
	if n, known := m.events[name]; known {
		return nil, n
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	for _, w := range m.webhooks {
		if w.Account != event.Account || !slices.Contains(w.Events, event.Type) || only != "" && only != w.ID {
			continue
		}
		m.last++
		r := &row{number: m.last, event: event, Delivery: driver.Delivery{
			EventID: event.ID, WebhookID: w.ID, Type: event.Type, Resource: event.Resource, PublishedAt: now, State: driver.Skipped,
		}}
		if w.Active {
			r.State, r.NextAttemptAt = driver.Pending, now
			added = append(added, m.pending(r))
		}
		m.rows = append(m.rows, r)
	}
	m.events[name] = len(added)
	return added, len(added)
}

func (m *model) Enqueue(ctx context.Context, event driver.EncodedEvent) (int, error) {
	if err := m.begin(ctx); err != nil {
		return 0, err
	}
	defer m.mu.Unlock()
	added, n := m.enqueue(event, "")
	m.add("Enqueue is not reported", added...)
	return n, nil
}

func (m *model) EnqueueOnce(ctx context.Context, event driver.EncodedEvent, keys []driver.DedupKey) (int, error) {
	if err := m.begin(ctx); err != nil {
		return 0, err
	}
	defer m.mu.Unlock()
	for _, key := range keys {
		if m.once[key.Key] {
			return 0, apierr.ErrExists
		}
	}
	for _, key := range keys {
		m.once[key.Key] = true
	}
	added, n := m.enqueue(event, "")
	m.add("EnqueueOnce is not reported", added...)
	return n, nil
}

func (m *model) UpdateAlert(ctx context.Context, _, _ string, change func(*driver.AlertStep) error) (n int, err error) {
	if err := m.begin(ctx); err != nil {
		return 0, err
	}
	defer m.mu.Unlock()
	step := driver.AlertStep{}
	if err := change(&step); err != nil {
		if m.fault == "a failed step is reported" && m.feed != nil {
			for _, w := range m.webhooks {
				m.feed.Add([]driver.PendingDelivery{{Number: 1 << 50, Webhook: w}})
			}
		}
		return 0, err
	}
	for _, event := range step.Events {
		added, more := m.enqueue(event.EncodedEvent, event.WebhookID)
		m.add("UpdateAlert is not reported", added...)
		n += more
	}
	return n, nil
}

func (m *model) CreateWebhook(ctx context.Context, w driver.Webhook, _ driver.CreateOptions) error {
	if err := m.begin(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	if m.webhooks[w.ID] != nil {
		return apierr.ErrExists
	}
	w.Version = 1
	m.webhooks[w.ID] = &w
	return nil
}

func (m *model) of(account, id string) (*driver.Webhook, error) {
	if w := m.webhooks[id]; w != nil && w.Account == account {
		return w, nil
	}
	return nil, apierr.ErrNotFound
}

func (m *model) WebhookByID(ctx context.Context, account, id string) (driver.Webhook, error) {
	if err := m.begin(ctx); err != nil {
		return driver.Webhook{}, err
	}
	defer m.mu.Unlock()
	w, err := m.of(account, id)
	if err != nil {
		return driver.Webhook{}, err
	}
	return *w, nil
}

func (m *model) list(keep func(*driver.Webhook) bool) (list []driver.Webhook, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.webhooks {
		if keep(w) {
			list = append(list, *w)
		}
	}
	slices.SortFunc(list, func(a, b driver.Webhook) int { return cmp.Compare(b.ID, a.ID) })
	return list, nil
}

func (m *model) ListWebhooks(_ context.Context, account string, _ driver.ListQuery) ([]driver.Webhook, error) {
	return m.list(func(w *driver.Webhook) bool { return w.Account == account })
}

func (m *model) OffWebhooks(context.Context, driver.ListQuery) ([]driver.Webhook, error) {
	return m.list(func(w *driver.Webhook) bool { return !w.Active })
}

func (m *model) FailingWebhooks(_ context.Context, since time.Time, _ driver.ListQuery) ([]driver.Webhook, error) {
	return m.list(func(w *driver.Webhook) bool { return w.Active && w.FailedAgain && !w.FailingSince.After(since) })
}

// put stores a changed webhook and reports it, unless the model has the given fault.
func (m *model) put(changed driver.Webhook, fault string) {
	old := m.webhooks[changed.ID]
	changed.Version = old.Version + 1
	if m.fault == "the version does not increase" {
		changed.Version = old.Version
	}
	if m.fault == "a reported webhook is changed" {
		*old = changed
	}
	m.webhooks[changed.ID] = &changed
	if m.feed != nil && m.fault != fault {
		m.feed.Webhook(&changed)
	}
}

func (m *model) UpdateWebhook(ctx context.Context, account, id string, change func(*driver.Webhook, *audit.Entry) error) (driver.Webhook, error) {
	if err := m.begin(ctx); err != nil {
		return driver.Webhook{}, err
	}
	defer m.mu.Unlock()
	w, err := m.of(account, id)
	if err != nil {
		return driver.Webhook{}, err
	}
	changed := *w
	if err := change(&changed, new(audit.Entry)); err != nil {
		return driver.Webhook{}, err
	}
	m.put(changed, "UpdateWebhook is not reported")
	return *m.webhooks[id], nil
}

func (m *model) forget(scope driver.Scope, fault string) {
	if m.feed != nil && m.fault != fault {
		m.feed.Forget(scope)
	}
}

func (m *model) drop(id string) {
	delete(m.webhooks, id)
	for _, r := range m.rows {
		r.gone = r.gone || r.WebhookID == id && m.fault != "deliveries of a deleted webhook stay"
	}
}

func (m *model) DeleteWebhook(ctx context.Context, account, id string, check func(driver.Webhook) error, _ audit.Entry) error {
	if err := m.begin(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	w, err := m.of(account, id)
	if err != nil {
		return err
	}
	if check != nil {
		if err := check(*w); err != nil {
			return err
		}
	}
	m.drop(id)
	m.forget(driver.Scope{WebhookID: id}, "DeleteWebhook is not reported")
	return nil
}

func (m *model) EraseAccount(ctx context.Context, account string, _ int) (erased store.Receipt, more bool, err error) {
	if err := m.begin(ctx); err != nil {
		return erased, false, err
	}
	defer m.mu.Unlock()
	for id, w := range m.webhooks {
		if w.Account == account {
			m.drop(id)
		}
	}
	for name := range m.events {
		if name[0] == account {
			delete(m.events, name)
		}
	}
	m.rows = slices.DeleteFunc(m.rows, func(r *row) bool { return r.event.Account == account })
	m.forget(driver.Scope{Account: account}, "EraseAccount is not reported")
	return erased, false, nil
}

func (m *model) Redeliver(ctx context.Context, account, webhookID, eventID string, entry audit.Entry) error {
	if err := m.begin(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	for _, r := range m.rows {
		if r.event.Account != account || r.WebhookID != webhookID || r.EventID != eventID || r.gone {
			continue
		}
		if r.State != driver.Pending || m.fault != "a redelivery of a pending delivery has no audit entry" {
			m.entries = append(m.entries, entry)
		}
		r.NextAttemptAt = time.Now().UTC().Truncate(time.Millisecond)
		if r.State == driver.Pending {
			if m.feed != nil && m.fault != "a redelivery of a pending delivery is not reported" {
				m.feed.Nudge(driver.DeliveryRef{WebhookID: webhookID, Number: r.number})
			}
		} else {
			r.State = driver.Pending
			if m.fault != "Before is lost" {
				r.before = r.attempts
			}
			p := m.pending(r)
			p.First = m.fault != "a redelivery is not First"
			m.add("a redelivery is not reported", p)
		}
		if m.feed != nil && m.fault != "a redelivery reports no Probe" {
			m.feed.Probe(webhookID)
		}
		return nil
	}
	return apierr.ErrNotFound
}

func (m *model) Probe(ctx context.Context, account, webhookID string) error {
	if err := m.begin(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	if _, err := m.of(account, webhookID); err != nil {
		return err
	}
	if m.feed != nil && m.fault != "Probe is not reported" {
		m.feed.Probe(webhookID)
	}
	return nil
}

func (m *model) CreateRecovery(_ context.Context, recovery driver.Recovery, _ audit.Entry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.recoveries = append(m.recoveries, recovery)
	return nil
}

func (m *model) AdvanceRecovery(context.Context, int) (advanced bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.recoveries) == 0 {
		return false, nil
	}
	recovery := m.recoveries[0]
	m.recoveries = m.recoveries[1:]
	for _, r := range m.rows {
		if r.WebhookID != recovery.WebhookID || r.gone || !slices.Contains(recovery.States, r.State) {
			continue
		}
		if r.State != driver.Pending {
			r.before = r.attempts
		}
		r.State, r.NextAttemptAt = driver.Pending, time.Now()
		p := m.pending(r)
		p.Recovered = true
		m.add("AdvanceRecovery is not reported", p)
	}
	return true, nil
}

func (m *model) EventDeliveries(_ context.Context, account, eventID string) (list []driver.Delivery, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.events[[2]string{account, eventID}]; !known {
		return nil, apierr.ErrNotFound
	}
	for _, r := range m.rows {
		if r.event.Account == account && r.EventID == eventID && !r.gone {
			d := r.Delivery
			d.Attempts = slices.Clone(d.Attempts)
			list = append(list, d)
		}
	}
	slices.SortFunc(list, func(a, b driver.Delivery) int { return cmp.Compare(a.WebhookID, b.WebhookID) })
	return list, nil
}

func (m *model) ListAuditEntries(_ context.Context, account string, _ audit.Query) (page audit.Page, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range m.entries {
		if n.Account == account {
			page.Entries = append(page.Entries, n)
		}
	}
	return page, nil
}

func (m *model) Now(context.Context) (time.Time, error) { return time.Now().UTC(), nil }

func (m *model) Purge(_ context.Context, purge driver.Purge) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.rows {
		if r.State == driver.Pending && r.PublishedAt.Before(purge.Payloads) {
			r.State, r.NextAttemptAt = driver.Dead, time.Time{}
			r.Attempts = append(r.Attempts, driver.ExpiredAttempt(r.attempts+1, time.Now()))
		}
	}
	return false, nil
}

func (m *model) Deliver(ctx context.Context, s driver.Scheduler) error {
	if m.fault != "a second Deliver does not wait" {
		select {
		case m.delivering <- struct{}{}:
			defer func() { <-m.delivering }()
		case <-ctx.Done():
			return ctx.Err()
		case <-m.closed:
			return store.ErrClosed
		}
	}
	if err := m.begin(ctx); err != nil {
		return err
	}
	m.feed = s
	var all []driver.PendingDelivery
	for _, r := range m.rows {
		if r.State == driver.Pending && !r.gone && (m.fault != "deliveries of inactive webhooks are not reported" || m.webhooks[r.WebhookID].Active) {
			all = append(all, m.pending(r))
		}
	}
	if m.fault == "the backlog is read before steps are reported" {
		m.feed = nil
		for stored, n := len(m.rows), 0; len(m.rows) == stored && n < 100; n++ {
			m.mu.Unlock()
			time.Sleep(2 * time.Millisecond)
			m.mu.Lock()
		}
		m.feed = s
	}
	m.mu.Unlock()
	for page := range slices.Chunk(all, 1000) {
		s.Add(page)
		if m.fault == "only one page is reported" {
			break
		}
	}
	s.Trouble(nil)
	select {
	case <-ctx.Done():
	case <-m.closed:
		return store.ErrClosed
	}
	if m.fault != "reports go on after Deliver returned" {
		m.mu.Lock()
		m.feed = nil
		m.mu.Unlock()
	}
	return ctx.Err()
}

func (m *model) row(ref driver.DeliveryRef) *row {
	for _, r := range m.rows {
		if r.number == ref.Number && r.WebhookID == ref.WebhookID && r.State == driver.Pending && !r.gone {
			return r
		}
	}
	return nil
}

func (m *model) Load(ctx context.Context, refs []driver.DeliveryRef) ([]driver.LoadedDelivery, error) {
	if err := m.begin(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	list := make([]driver.LoadedDelivery, len(refs))
	for i, ref := range refs {
		r := m.row(ref)
		if r == nil {
			continue
		}
		w := m.webhooks[r.WebhookID]
		list[i] = driver.LoadedDelivery{
			State: driver.Passive, Webhook: w, Attempts: r.attempts, Before: r.before, Due: r.NextAttemptAt,
		}
		if w.Claimable() || m.fault == "inactive webhooks are Ready" && !w.Active || m.fault == "webhooks on hold are Ready" && w.Held {
			list[i].State, list[i].Event, list[i].Age = driver.Ready, r.event, time.Since(r.PublishedAt)
		}
	}
	if m.fault == "Load returns another order" {
		slices.Reverse(list)
	}
	return list, nil
}

func (m *model) Settle(ctx context.Context, results []driver.AttemptResult, health []driver.HealthChange) (s driver.Settled, _ error) {
	if m.fault == "Settle ignores an ended context" {
		ctx = context.WithoutCancel(ctx)
	}
	if err := m.begin(ctx); err != nil {
		return s, err
	}
	defer m.mu.Unlock()
	for i, h := range health {
		w, err := m.of(h.Account, h.WebhookID)
		fits := err == nil && (w.Version == h.Version || m.fault == "Settle ignores the version of health")
		if fits || m.fault == "audit entries are stored without their change" {
			m.entries = append(m.entries, h.AuditEntries...)
		}
		if !fits {
			s.Conflicts = append(s.Conflicts, i)
			continue
		}
		changed := *w
		changed.WebhookHealth = h.Health
		m.put(changed, "a change of health is not reported")
	}
	if len(s.Conflicts) > 0 && m.fault == "a conflict holds up results" {
		return s, nil
	}
	for i, result := range results {
		r := m.row(result.DeliveryRef)
		if r == nil || r.attempts >= result.Attempt.Number && m.fault != "an attempt number is stored twice" {
			s.Stale = append(s.Stale, i)
			continue
		}
		r.attempts, r.Attempts = result.Attempt.Number, append(r.Attempts, result.Attempt)
		if m.fault != "RetryAfter is ignored" {
			r.NextAttemptAt = time.Now().Add(result.RetryAfter)
		}
		r.State = map[driver.Effect]driver.DeliveryState{
			driver.Retry: driver.Pending, driver.Deliver: driver.Delivered, driver.GiveUp: driver.Dead,
		}[result.Effect]
		if m.fault == "results are reported" && m.feed != nil && r.State == driver.Pending {
			m.feed.Add([]driver.PendingDelivery{m.pending(r)})
		}
	}
	return s, nil
}

func (m *model) Unreported(ctx context.Context, webhookID string) (b driver.Backlog, _ error) {
	if err := m.begin(ctx); err != nil {
		return b, err
	}
	defer m.mu.Unlock()
	for _, w := range m.webhooks {
		if w.Held && webhookID == "" {
			b.Held++
		}
	}
	for _, r := range m.rows {
		if m.feed != nil && m.fault != "reported deliveries are counted as unreported" || r.gone || r.State != driver.Pending || webhookID != "" && r.WebhookID != webhookID {
			continue
		}
		b.Pending++
		if due := r.NextAttemptAt; m.webhooks[r.WebhookID].Claimable() && !m.webhooks[r.WebhookID].Paused(time.Now()) && !due.After(time.Now()) && (b.OldestDue.IsZero() || due.Before(b.OldestDue)) {
			b.OldestDue = due
		}
	}
	return b, nil
}

func (m *model) Ping(ctx context.Context) error {
	if err := m.begin(ctx); err != nil {
		return err
	}
	m.mu.Unlock()
	return nil
}
