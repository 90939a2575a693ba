package storetest_test

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/storetest"
)

// A failingModel is a model whose steps fail. Every other step is done, but returns an error all
// the same.
type failingModel struct {
	*model
	failing atomic.Bool
	steps   atomic.Int32
}

func newFailingModel(fault string) storetest.FailingStore {
	m := &failingModel{model: newModel(fault)}
	return storetest.FailingStore{
		Store: m,
		Fail:  func() { m.failing.Store(true) },
		Mend:  func() store.Store { m.failing.Store(false); return m },
	}
}

var errDisk = errors.New("disk failed")

// step runs a step of the model. While the model is failing, each call returns errDisk, and only
// every second step is done.
func (m *failingModel) step(step func() error) error {
	if !m.failing.Load() {
		return step()
	}
	m.mu.Lock()
	feed, happens := m.feed, m.steps.Add(1)%2 == 0
	if happens && m.fault == "a visible step with a failed commit is not reported" {
		m.feed = nil
	}
	m.mu.Unlock()
	if happens {
		_ = step()
	} else if m.fault == "an invisible step with a failed commit is reported" {
		m.mu.Lock()
		for _, w := range m.webhooks {
			feed.Forget(driver.Scope{WebhookID: w.ID})
		}
		m.mu.Unlock()
	}
	m.mu.Lock()
	m.feed = feed
	m.mu.Unlock()
	return errDisk
}

func (m *failingModel) Enqueue(ctx context.Context, event driver.EncodedEvent) (n int, err error) {
	err = m.step(func() error { n, err = m.model.Enqueue(ctx, event); return err })
	return n, err
}

func (m *failingModel) Redeliver(ctx context.Context, account, webhookID, eventID string, entry audit.Entry) error {
	return m.step(func() error { return m.model.Redeliver(ctx, account, webhookID, eventID, entry) })
}

func (m *failingModel) UpdateWebhook(ctx context.Context, account, id string, change func(*driver.Webhook, *audit.Entry) error) (w driver.Webhook, err error) {
	err = m.step(func() error { w, err = m.model.UpdateWebhook(ctx, account, id, change); return err })
	return w, err
}

func (m *failingModel) Settle(ctx context.Context, results []driver.AttemptResult, health []driver.HealthChange) (s driver.Settled, err error) {
	err = m.step(func() error { s, err = m.model.Settle(ctx, results, health); return err })
	return s, err
}

func (m *failingModel) DeleteWebhook(ctx context.Context, account, id string, check func(driver.Webhook) error, entry audit.Entry) error {
	return m.step(func() error { return m.model.DeleteWebhook(ctx, account, id, check, entry) })
}
