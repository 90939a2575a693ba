package simulation_test

import (
	"context"
	"sync"
	"time"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks"
)

// A faulty is the store as one process sees it. Its calls meet faults, and the ledger records which
// deliveries it loads and settles.
type faulty struct {
	store.Store
	noisy   driver.Deliveries // the store with noise in its reports
	world   *world
	process int // number of the process

	mu    sync.Mutex
	calls int // calls in progress in Store
	dead  bool
	died  chan struct{}
}

func (f *faulty) enter() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		return false
	}
	f.calls++
	return true
}

func (f *faulty) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls--
}

func (f *faulty) isDead() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dead
}

// kill ends the process. Its calls in progress take effect, but return errDead.
func (f *faulty) kill() {
	f.mu.Lock()
	if !f.dead {
		f.dead = true
		close(f.died)
	}
	f.mu.Unlock()
	for f.busy() {
		time.Sleep(time.Millisecond)
	}
}

func (f *faulty) busy() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls > 0
}

// try is like call, for methods without a result.
func try(f *faulty, ctx context.Context, method string, do func() error) error {
	_, err := call(f, ctx, method, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

func (f *faulty) CreateKey(ctx context.Context, key apikeys.Key, options driver.CreateOptions) error {
	return try(f, ctx, "CreateKey", func() error { return f.Store.CreateKey(ctx, key, options) })
}

func (f *faulty) KeyByHash(ctx context.Context, hash driver.Hash) (apikeys.Key, error) {
	return call(f, ctx, "KeyByHash", func() (apikeys.Key, error) { return f.Store.KeyByHash(ctx, hash) })
}

func (f *faulty) KeyByID(ctx context.Context, account, id string) (apikeys.Key, error) {
	return call(f, ctx, "KeyByID", func() (apikeys.Key, error) { return f.Store.KeyByID(ctx, account, id) })
}

func (f *faulty) ListKeys(ctx context.Context, account string, page driver.ListQuery) ([]apikeys.Key, error) {
	return call(f, ctx, "ListKeys", func() ([]apikeys.Key, error) { return f.Store.ListKeys(ctx, account, page) })
}

func (f *faulty) ExpiringKeys(ctx context.Context, query driver.ExpiryQuery) ([]apikeys.Key, error) {
	return call(f, ctx, "ExpiringKeys", func() ([]apikeys.Key, error) { return f.Store.ExpiringKeys(ctx, query) })
}

func (f *faulty) UpdateKey(ctx context.Context, account, id string, change func(*apikeys.Key, *audit.Entry) error) (apikeys.Key, error) {
	return call(f, ctx, "UpdateKey", func() (apikeys.Key, error) { return f.Store.UpdateKey(ctx, account, id, change) })
}

func (f *faulty) DeleteKey(ctx context.Context, account, id string, check func(apikeys.Key) error, entry audit.Entry) error {
	return try(f, ctx, "DeleteKey", func() error { return f.Store.DeleteKey(ctx, account, id, check, entry) })
}

func (f *faulty) RecordKeyUse(ctx context.Context, uses []driver.KeyUse) error {
	return try(f, ctx, "RecordKeyUse", func() error { return f.Store.RecordKeyUse(ctx, uses) })
}

func (f *faulty) CreateWebhook(ctx context.Context, webhook webhooks.Webhook, options driver.CreateOptions) error {
	return try(f, ctx, "CreateWebhook", func() error { return f.Store.CreateWebhook(ctx, webhook, options) })
}

func (f *faulty) WebhookByID(ctx context.Context, account, id string) (webhooks.Webhook, error) {
	return call(f, ctx, "WebhookByID", func() (webhooks.Webhook, error) { return f.Store.WebhookByID(ctx, account, id) })
}

func (f *faulty) ListWebhooks(ctx context.Context, account string, page driver.ListQuery) ([]webhooks.Webhook, error) {
	return call(f, ctx, "ListWebhooks", func() ([]webhooks.Webhook, error) { return f.Store.ListWebhooks(ctx, account, page) })
}

func (f *faulty) UpdateWebhook(ctx context.Context, account, id string, change func(*webhooks.Webhook, *audit.Entry) error) (webhooks.Webhook, error) {
	return call(f, ctx, "UpdateWebhook", func() (webhooks.Webhook, error) { return f.Store.UpdateWebhook(ctx, account, id, change) })
}

func (f *faulty) DeleteWebhook(ctx context.Context, account, id string, check func(webhooks.Webhook) error, entry audit.Entry) error {
	return try(f, ctx, "DeleteWebhook", func() error { return f.Store.DeleteWebhook(ctx, account, id, check, entry) })
}

func (f *faulty) Enqueue(ctx context.Context, event webhooks.EncodedEvent) (int, error) {
	return call(f, ctx, "Enqueue", func() (int, error) { return f.Store.Enqueue(ctx, event) })
}

func (f *faulty) UpdateAlert(ctx context.Context, account, series string, change func(*driver.AlertStep) error) (int, error) {
	return call(f, ctx, "UpdateAlert", func() (int, error) { return f.Store.UpdateAlert(ctx, account, series, change) })
}

func (f *faulty) UpdateScan(ctx context.Context, change func([]byte) ([]byte, error)) error {
	return try(f, ctx, "UpdateScan", func() error { return f.Store.UpdateScan(ctx, change) })
}

func (f *faulty) DueAlerts(ctx context.Context, limit int) ([]driver.AlertSeries, error) {
	return call(f, ctx, "DueAlerts", func() ([]driver.AlertSeries, error) { return f.Store.DueAlerts(ctx, limit) })
}

func (f *faulty) UnseenKeys(ctx context.Context, account string, dedupKeys []driver.DedupKey) ([]int, error) {
	return call(f, ctx, "UnseenKeys", func() ([]int, error) { return f.Store.UnseenKeys(ctx, account, dedupKeys) })
}

func (f *faulty) EnqueueOnce(ctx context.Context, event webhooks.EncodedEvent, dedupKeys []driver.DedupKey) (int, error) {
	return call(f, ctx, "EnqueueOnce", func() (int, error) { return f.Store.EnqueueOnce(ctx, event, dedupKeys) })
}

// Deliver returns when its process ends. Its reports are duplicated, delayed and reordered.
func (f *faulty) Deliver(ctx context.Context, s driver.Scheduler) error {
	if f.isDead() {
		return errDead
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	go func() {
		select {
		case <-f.died:
			end()
		case <-ctx.Done():
		}
	}()
	return f.noisy.Deliver(ctx, s)
}

func (f *faulty) Load(ctx context.Context, refs []driver.DeliveryRef) ([]driver.LoadedDelivery, error) {
	return call(f, ctx, "Load", func() ([]driver.LoadedDelivery, error) {
		began := f.world.now()
		found, err := f.noisy.Load(ctx, refs)
		f.world.ledger.loaded(f.process, began, refs, found)
		return found, err
	})
}

func (f *faulty) Settle(ctx context.Context, results []driver.AttemptResult, health []driver.HealthChange) (driver.Settled, error) {
	return call(f, ctx, "Settle", func() (driver.Settled, error) {
		f.world.ledger.settling(results)
		settled, err := f.noisy.Settle(ctx, results, health)
		f.world.ledger.settled(results, health, settled, err)
		return settled, err
	})
}

func (f *faulty) Unreported(ctx context.Context, webhookID string) (driver.Backlog, error) {
	return call(f, ctx, "Unreported", func() (driver.Backlog, error) { return f.noisy.Unreported(ctx, webhookID) })
}

func (f *faulty) Ping(ctx context.Context) error {
	return try(f, ctx, "Ping", func() error { return f.noisy.Ping(ctx) })
}

func (f *faulty) EventDeliveries(ctx context.Context, account, eventID string) ([]webhooks.Delivery, error) {
	return call(f, ctx, "EventDeliveries", func() ([]webhooks.Delivery, error) { return f.Store.EventDeliveries(ctx, account, eventID) })
}

func (f *faulty) ListDeliveries(ctx context.Context, account, webhookID string, query webhooks.DeliveryQuery) (webhooks.DeliveryPage, error) {
	return call(f, ctx, "ListDeliveries", func() (webhooks.DeliveryPage, error) {
		return f.Store.ListDeliveries(ctx, account, webhookID, query)
	})
}

func (f *faulty) Redeliver(ctx context.Context, account, webhookID, eventID string, entry audit.Entry) error {
	return try(f, ctx, "Redeliver", func() error { return f.Store.Redeliver(ctx, account, webhookID, eventID, entry) })
}

func (f *faulty) CreateRecovery(ctx context.Context, recovery webhooks.Recovery, entry audit.Entry) error {
	return try(f, ctx, "CreateRecovery", func() error { return f.Store.CreateRecovery(ctx, recovery, entry) })
}

func (f *faulty) RecoveryByID(ctx context.Context, account, id string) (webhooks.Recovery, error) {
	return call(f, ctx, "RecoveryByID", func() (webhooks.Recovery, error) { return f.Store.RecoveryByID(ctx, account, id) })
}

func (f *faulty) AdvanceRecovery(ctx context.Context, limit int) (bool, error) {
	return call(f, ctx, "AdvanceRecovery", func() (bool, error) { return f.Store.AdvanceRecovery(ctx, limit) })
}

func (f *faulty) Purge(ctx context.Context, purge driver.Purge) (bool, error) {
	return call(f, ctx, "Purge", func() (bool, error) { return f.Store.Purge(ctx, purge) })
}

func (f *faulty) Now(ctx context.Context) (time.Time, error) {
	return call(f, ctx, "Now", func() (time.Time, error) { return f.Store.Now(ctx) })
}

func (f *faulty) Probe(ctx context.Context, account, webhookID string) error {
	return try(f, ctx, "Probe", func() error {
		f.world.ledger.probes(webhookID)
		return f.Store.Probe(ctx, account, webhookID)
	})
}

func (f *faulty) AccountSizes(ctx context.Context, accounts []string) ([]store.AccountSize, error) {
	return call(f, ctx, "AccountSizes", func() ([]store.AccountSize, error) { return f.Store.AccountSizes(ctx, accounts) })
}

func (f *faulty) FailingWebhooks(ctx context.Context, since time.Time, page driver.ListQuery) ([]webhooks.Webhook, error) {
	return call(f, ctx, "FailingWebhooks", func() ([]webhooks.Webhook, error) { return f.Store.FailingWebhooks(ctx, since, page) })
}

func (f *faulty) OffWebhooks(ctx context.Context, page driver.ListQuery) ([]webhooks.Webhook, error) {
	return call(f, ctx, "OffWebhooks", func() ([]webhooks.Webhook, error) { return f.Store.OffWebhooks(ctx, page) })
}

func (f *faulty) HeldWebhooks(ctx context.Context, page driver.ListQuery) ([]webhooks.Webhook, error) {
	return call(f, ctx, "HeldWebhooks", func() ([]webhooks.Webhook, error) { return f.Store.HeldWebhooks(ctx, page) })
}

func (f *faulty) EraseAccount(ctx context.Context, account string, limit int) (erased store.Receipt, more bool, err error) {
	erased, err = call(f, ctx, "EraseAccount", func() (erased store.Receipt, err error) {
		erased, more, err = f.Store.EraseAccount(ctx, account, min(limit, 3)) // so that there are several steps
		return erased, err
	})
	return erased, more && err == nil, err
}

func (f *faulty) AddAuditEntries(ctx context.Context, list []audit.Entry) (int, error) {
	return call(f, ctx, "AddAuditEntries", func() (int, error) { return f.Store.AddAuditEntries(ctx, list) })
}

func (f *faulty) LeaseAudit(ctx context.Context, holder string, ttl time.Duration) (bool, error) {
	return call(f, ctx, "LeaseAudit", func() (bool, error) { return f.Store.LeaseAudit(ctx, holder, ttl) })
}

func (f *faulty) PendingAccounts(ctx context.Context, after string, limit int) ([]string, error) {
	return call(f, ctx, "PendingAccounts", func() ([]string, error) { return f.Store.PendingAccounts(ctx, after, limit) })
}

func (f *faulty) PendingAuditEntries(ctx context.Context, account string, limit int) ([]audit.Numbered, error) {
	return call(f, ctx, "PendingAuditEntries", func() ([]audit.Numbered, error) { return f.Store.PendingAuditEntries(ctx, account, limit) })
}

func (f *faulty) TakeAuditEntries(ctx context.Context, numbers []uint64) error {
	return try(f, ctx, "TakeAuditEntries", func() error { return f.Store.TakeAuditEntries(ctx, numbers) })
}
