package httpapi_test

import (
	"context"
	"time"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// A faulty store calls before with the name of each method that the routes use. If before returns
// an error, so does the method.
type faulty struct {
	store.Store
	before func(method string) error
}

func newFaulty() *faulty {
	return &faulty{memory.New(), func(string) error { return nil }}
}

func (f *faulty) CreateKey(ctx context.Context, key apikeys.Key, options driver.CreateOptions) error {
	if err := f.before("CreateKey"); err != nil {
		return err
	}
	return f.Store.CreateKey(ctx, key, options)
}

func (f *faulty) KeyByHash(ctx context.Context, hash driver.Hash) (apikeys.Key, error) {
	if err := f.before("KeyByHash"); err != nil {
		return apikeys.Key{}, err
	}
	return f.Store.KeyByHash(ctx, hash)
}

func (f *faulty) KeyByID(ctx context.Context, account, id string) (apikeys.Key, error) {
	if err := f.before("KeyByID"); err != nil {
		return apikeys.Key{}, err
	}
	return f.Store.KeyByID(ctx, account, id)
}

func (f *faulty) ListKeys(ctx context.Context, account string, page driver.ListQuery) ([]apikeys.Key, error) {
	if err := f.before("ListKeys"); err != nil {
		return nil, err
	}
	return f.Store.ListKeys(ctx, account, page)
}

func (f *faulty) UpdateKey(ctx context.Context, account, id string, change func(*apikeys.Key, *audit.Entry) error) (apikeys.Key, error) {
	if err := f.before("UpdateKey"); err != nil {
		return apikeys.Key{}, err
	}
	return f.Store.UpdateKey(ctx, account, id, change)
}

func (f *faulty) DeleteKey(ctx context.Context, account, id string, check func(apikeys.Key) error, entry audit.Entry) error {
	if err := f.before("DeleteKey"); err != nil {
		return err
	}
	return f.Store.DeleteKey(ctx, account, id, check, entry)
}

func (f *faulty) CreateWebhook(ctx context.Context, webhook webhooks.Webhook, options driver.CreateOptions) error {
	if err := f.before("CreateWebhook"); err != nil {
		return err
	}
	return f.Store.CreateWebhook(ctx, webhook, options)
}

func (f *faulty) WebhookByID(ctx context.Context, account, id string) (webhooks.Webhook, error) {
	if err := f.before("WebhookByID"); err != nil {
		return webhooks.Webhook{}, err
	}
	return f.Store.WebhookByID(ctx, account, id)
}

func (f *faulty) ListWebhooks(ctx context.Context, account string, page driver.ListQuery) ([]webhooks.Webhook, error) {
	if err := f.before("ListWebhooks"); err != nil {
		return nil, err
	}
	return f.Store.ListWebhooks(ctx, account, page)
}

func (f *faulty) DeleteWebhook(ctx context.Context, account, id string, check func(webhooks.Webhook) error, entry audit.Entry) error {
	if err := f.before("DeleteWebhook"); err != nil {
		return err
	}
	return f.Store.DeleteWebhook(ctx, account, id, check, entry)
}

func (f *faulty) RecordKeyUse(ctx context.Context, uses []driver.KeyUse) error {
	if err := f.before("RecordKeyUse"); err != nil {
		return err
	}
	return f.Store.RecordKeyUse(ctx, uses)
}

func (f *faulty) UpdateWebhook(ctx context.Context, account, id string, change func(*webhooks.Webhook, *audit.Entry) error) (webhooks.Webhook, error) {
	if err := f.before("UpdateWebhook"); err != nil {
		return webhooks.Webhook{}, err
	}
	return f.Store.UpdateWebhook(ctx, account, id, change)
}

func (f *faulty) EventDeliveries(ctx context.Context, account, eventID string) ([]webhooks.Delivery, error) {
	if err := f.before("EventDeliveries"); err != nil {
		return nil, err
	}
	return f.Store.EventDeliveries(ctx, account, eventID)
}

func (f *faulty) ListDeliveries(ctx context.Context, account, webhookID string, query webhooks.DeliveryQuery) (webhooks.DeliveryPage, error) {
	if err := f.before("ListDeliveries"); err != nil {
		return webhooks.DeliveryPage{}, err
	}
	return f.Store.ListDeliveries(ctx, account, webhookID, query)
}

func (f *faulty) EventByID(ctx context.Context, account, eventID string) (webhooks.EncodedEvent, time.Time, error) {
	if err := f.before("EventByID"); err != nil {
		return webhooks.EncodedEvent{}, time.Time{}, err
	}
	return f.Store.EventByID(ctx, account, eventID)
}

func (f *faulty) ListEvents(ctx context.Context, account string, query webhooks.EventQuery) (webhooks.EventPage, error) {
	if err := f.before("ListEvents"); err != nil {
		return webhooks.EventPage{}, err
	}
	return f.Store.ListEvents(ctx, account, query)
}

func (f *faulty) Redeliver(ctx context.Context, account, webhookID, eventID string, entry audit.Entry) error {
	if err := f.before("Redeliver"); err != nil {
		return err
	}
	return f.Store.Redeliver(ctx, account, webhookID, eventID, entry)
}

func (f *faulty) CreateRecovery(ctx context.Context, recovery webhooks.Recovery, entry audit.Entry) error {
	if err := f.before("CreateRecovery"); err != nil {
		return err
	}
	return f.Store.CreateRecovery(ctx, recovery, entry)
}

func (f *faulty) RecoveryByID(ctx context.Context, account, id string) (webhooks.Recovery, error) {
	if err := f.before("RecoveryByID"); err != nil {
		return webhooks.Recovery{}, err
	}
	return f.Store.RecoveryByID(ctx, account, id)
}

func (f *faulty) ListAuditEntries(ctx context.Context, account string, query audit.Query) (audit.Page, error) {
	if err := f.before("ListAuditEntries"); err != nil {
		return audit.Page{}, err
	}
	return f.Store.ListAuditEntries(ctx, account, query)
}
