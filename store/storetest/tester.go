package storetest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
)

var eventTimeout = 10 * time.Second // for expected events; tests of the suite change it

// A tester combines a test with the store under test. Its methods fail the test if the store
// returns an error. Call them only from the test's goroutine.
type tester struct {
	*testing.T
	store store.Store
}

// inParallel calls f in n goroutines and waits for them.
func inParallel(n int, f func(i int)) {
	var group sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		group.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	group.Wait()
}

func (t *tester) must(err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (t *tester) wantError(what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

func wantSame[T any](t *tester, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got, same); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func (t *tester) createKeys(keys ...driver.Key) {
	t.Helper()
	for _, key := range keys {
		t.must(t.store.CreateKey(t.Context(), key, driver.CreateOptions{}))
	}
}

func (t *tester) key(account, id string) driver.Key {
	t.Helper()
	key, err := t.store.KeyByID(t.Context(), account, id)
	t.must(err)
	return key
}

// updateKey changes a key of the account "acct".
func (t *tester) updateKey(id string, change func(*driver.Key)) driver.Key {
	t.Helper()
	key, err := t.store.UpdateKey(t.Context(), "acct", id, func(key *driver.Key, _ *audit.Entry) error {
		change(key)
		return nil
	})
	t.must(err)
	return key
}

// wantKeyAt checks that KeyByHash returns the key for hash.
func (t *tester) wantKeyAt(hash driver.Hash, want driver.Key) {
	t.Helper()
	got, err := t.store.KeyByHash(t.Context(), hash)
	t.must(err)
	wantSame(t, "KeyByHash", got, want)
}

func (t *tester) wantNoKeyAt(hash driver.Hash) {
	t.Helper()
	_, err := t.store.KeyByHash(t.Context(), hash)
	t.wantError("KeyByHash", err, apierr.ErrNotFound)
}

func (t *tester) createWebhooks(list ...driver.Webhook) {
	t.Helper()
	for _, w := range list {
		t.must(t.store.CreateWebhook(t.Context(), w, driver.CreateOptions{}))
	}
}

func (t *tester) webhook(account, id string) driver.Webhook {
	t.Helper()
	w, err := t.store.WebhookByID(t.Context(), account, id)
	t.must(err)
	return w
}

func (t *tester) updateWebhook(account, id string, change func(*driver.Webhook)) driver.Webhook {
	t.Helper()
	w, err := t.store.UpdateWebhook(t.Context(), account, id, func(w *driver.Webhook, _ *audit.Entry) error {
		change(w)
		return nil
	})
	t.must(err)
	return w
}

func (t *tester) setActive(account, id string, active bool) {
	t.Helper()
	t.updateWebhook(account, id, func(w *driver.Webhook) { w.Active = active })
}

// enqueue stores an event and checks that it has want deliveries.
func (t *tester) enqueue(event driver.EncodedEvent, want int) {
	t.Helper()
	got, err := t.store.Enqueue(t.Context(), event)
	t.must(err)
	if got != want {
		t.Fatalf("Enqueue of %q = %d deliveries, want %d", event.ID, got, want)
	}
}

// enqueueMany stores n events with the prefix "event", and checks that each has the given number of
// deliveries.
func (t *tester) enqueueMany(account string, n, webhooks int) {
	t.Helper()
	for i := range n {
		t.enqueue(newEvent(account, numbered("event", i)), webhooks)
	}
}

func (t *tester) worker() *Worker { return WorkerOf(t.store) }

// claim claims at most n deliveries that are due now, of the given webhooks or, if none are given,
// of all webhooks.
func (t *tester) claim(n int, webhookIDs ...string) []Task {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eventTimeout)
	defer cancel()
	tasks, err := t.worker().Claim(ctx, n, webhookIDs...)
	t.must(err)
	return tasks
}

// claimAll claims all deliveries that are due now, and checks that there are want of them.
func (t *tester) claimAll(want int) []Task {
	t.Helper()
	tasks := t.claim(want + 1000) // asks for more than want, to detect surplus deliveries
	if len(tasks) != want {
		t.Fatalf("claimed %d deliveries, want %d", len(tasks), want)
	}
	return tasks
}

// await waits until want deliveries have become due, and claims them.
func (t *tester) await(want int) []Task {
	t.Helper()
	var tasks []Task
	for end := time.Now().Add(eventTimeout); len(tasks) < want; time.Sleep(time.Millisecond) {
		tasks = append(tasks, t.claim(want+1000)...)
		if len(tasks) < want && time.Now().After(end) {
			t.Fatalf("claimed %d deliveries within %v, want %d", len(tasks), eventTimeout, want)
		}
	}
	return tasks
}

// settle settles claims, and checks that none is stale.
func (t *tester) settle(settlements ...Settlement) {
	t.Helper()
	stale, err := t.worker().Settle(t.Context(), settlements)
	t.must(err)
	if len(stale) != 0 {
		t.Fatalf("Settle reported %v as stale, want none", stale)
	}
}

func (t *tester) wantStale(settlement Settlement) {
	t.Helper()
	stale, err := t.worker().Settle(t.Context(), []Settlement{settlement})
	t.must(err)
	wantSame(t, "stale", stale, []int{0})
}

// backlog returns the backlog of a webhook, or of all webhooks if webhookID is empty.
func (t *tester) backlog(webhookID string) driver.Backlog {
	t.Helper()
	b, err := t.worker().Backlog(t.Context(), webhookID)
	t.must(err)
	return b
}

func (t *tester) deliveries(account, eventID string) []driver.Delivery {
	t.Helper()
	list, err := t.store.EventDeliveries(t.Context(), account, eventID)
	t.must(err)
	return list
}

// delivery returns the only delivery of an event.
func (t *tester) delivery(account, eventID string) driver.Delivery {
	t.Helper()
	list := t.deliveries(account, eventID)
	if len(list) != 1 {
		t.Fatalf("EventDeliveries of %q has %d deliveries, want 1", eventID, len(list))
	}
	return list[0]
}
