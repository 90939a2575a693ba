package simulation_test

import (
	"context"
	"time"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/capability"
	"github.com/storageapi/storageapi/store/queue"
	"github.com/storageapi/storageapi/store/storetest"
	"github.com/storageapi/storageapi/webhooks"
)

// A noisy store answers claims from reports that are doubled, delayed and in another order.
type noisy struct {
	store.Store
	claims *queue.Claims
}

// newNoisy returns s with noise, if it reports deliveries.
func newNoisy(s store.Store, seed uint64) store.Store {
	deliveries, ok := s.(webhooks.Deliveries)
	if !ok {
		return s
	}
	of := struct {
		webhooks.Deliveries
		webhookReader
	}{storetest.Noisy(deliveries, seed), s}
	return &noisy{s, queue.Over(of, queue.Options{})}
}

type webhookReader interface {
	WebhookByID(ctx context.Context, account, id string) (webhooks.Webhook, error)
}

func (n *noisy) ClaimDeliveries(ctx context.Context, claim webhooks.Claim) ([]webhooks.Task, time.Duration, error) {
	return n.claims.ClaimDeliveries(ctx, claim)
}

func (n *noisy) SettleDeliveries(ctx context.Context, settlements []webhooks.Settlement) ([]int, error) {
	return n.claims.SettleDeliveries(ctx, settlements)
}

func (n *noisy) Backlog(ctx context.Context, webhookID string) (webhooks.Backlog, error) {
	return n.claims.Backlog(ctx, webhookID)
}

func (n *noisy) LongestWait(ctx context.Context) (time.Duration, error) {
	return n.claims.LongestWait(ctx)
}

// Capabilities adds Wake: a report that is late has nobody else to wake the host.
func (n *noisy) Capabilities() capability.Set {
	set := n.Store.Capabilities()
	set.Wake = n.claims.Wake
	return set
}

func (n *noisy) Close() error {
	n.claims.Close()
	return n.Store.Close()
}
