package storetest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/webhooks"
)

var patience = 10 * time.Second // for what has to happen; a variable for the suite's own tests

// A tester is a test with a store of its own. Its methods end the test when the
// store returns an error, and are for the test's own goroutine.
type tester struct {
	*testing.T
	store store.Store
}

// inParallel calls f in n goroutines at once and waits for them.
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

func (t *tester) createKeys(keys ...apikeys.Key) {
	t.Helper()
	for _, key := range keys {
		t.must(t.store.CreateKey(t.Context(), key, apikeys.CreateOptions{}))
	}
}

func (t *tester) key(account, id string) apikeys.Key {
	t.Helper()
	key, err := t.store.KeyByID(t.Context(), account, id)
	t.must(err)
	return key
}

// updateKey changes a key of the account acct.
func (t *tester) updateKey(id string, change func(*apikeys.Key)) apikeys.Key {
	t.Helper()
	key, err := t.store.UpdateKey(t.Context(), "acct", id, func(key *apikeys.Key, _ *notices.Notice) error {
		change(key)
		return nil
	})
	t.must(err)
	return key
}

// wantKeyAt checks which key a hash finds.
func (t *tester) wantKeyAt(hash apikeys.Hash, want apikeys.Key) {
	t.Helper()
	got, err := t.store.KeyByHash(t.Context(), hash)
	t.must(err)
	wantSame(t, "KeyByHash", got, want)
}

// wantNoKeyAt checks that a hash finds nothing.
func (t *tester) wantNoKeyAt(hash apikeys.Hash) {
	t.Helper()
	_, err := t.store.KeyByHash(t.Context(), hash)
	t.wantError("KeyByHash", err, apikeys.ErrNotFound)
}

func (t *tester) createWebhooks(list ...webhooks.Webhook) {
	t.Helper()
	for _, w := range list {
		t.must(t.store.CreateWebhook(t.Context(), w, webhooks.CreateOptions{}))
	}
}

func (t *tester) webhook(account, id string) webhooks.Webhook {
	t.Helper()
	w, err := t.store.WebhookByID(t.Context(), account, id)
	t.must(err)
	return w
}

func (t *tester) updateWebhook(account, id string, change func(*webhooks.Webhook)) webhooks.Webhook {
	t.Helper()
	w, err := t.store.UpdateWebhook(t.Context(), account, id, func(w *webhooks.Webhook, _ *notices.Notice) error {
		change(w)
		return nil
	})
	t.must(err)
	return w
}

func (t *tester) setActive(account, id string, active bool) {
	t.Helper()
	t.updateWebhook(account, id, func(w *webhooks.Webhook) { w.Active = active })
}

// enqueue stores an event and checks how many deliveries that makes.
func (t *tester) enqueue(event webhooks.EncodedEvent, want int) {
	t.Helper()
	got, err := t.store.Enqueue(t.Context(), event)
	t.must(err)
	if got != want {
		t.Fatalf("Enqueue of %q = %d deliveries, want %d", event.ID, got, want)
	}
}

// enqueueMany stores n events, numbered "event", that are for that many webhooks
// each.
func (t *tester) enqueueMany(account string, n, webhooks int) {
	t.Helper()
	for i := range n {
		t.enqueue(newEvent(account, numbered("event", i)), webhooks)
	}
}

// worker returns the store's worker.
func (t *tester) worker() *Worker { return WorkerOf(t.store) }

// claim claims what is due now, n deliveries at most, of the webhooks or of all.
func (t *tester) claim(n int, webhookIDs ...string) []Task {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tasks, err := t.worker().Claim(ctx, n, webhookIDs...)
	t.must(err)
	return tasks
}

// claimAll claims what is due now, and checks how much it is.
func (t *tester) claimAll(want int) []Task {
	t.Helper()
	tasks := t.claim(want + 1000) // to see that there are too many
	if len(tasks) != want {
		t.Fatalf("claimed %d deliveries, want %d", len(tasks), want)
	}
	return tasks
}

// await claims until that many deliveries have become due.
func (t *tester) await(want int) []Task {
	t.Helper()
	var tasks []Task
	for end := time.Now().Add(patience); len(tasks) < want; time.Sleep(time.Millisecond) {
		tasks = append(tasks, t.claim(want+1000)...)
		if len(tasks) < want && time.Now().After(end) {
			t.Fatalf("claimed %d deliveries within %v, want %d", len(tasks), patience, want)
		}
	}
	return tasks
}

// settle ends claims, none of which is stale.
func (t *tester) settle(settlements ...Settlement) {
	t.Helper()
	stale, err := t.worker().Settle(t.Context(), settlements)
	t.must(err)
	if len(stale) != 0 {
		t.Fatalf("Settle says that %v are stale, want none", stale)
	}
}

// wantStale checks that a settlement is stale.
func (t *tester) wantStale(settlement Settlement) {
	t.Helper()
	stale, err := t.worker().Settle(t.Context(), []Settlement{settlement})
	t.must(err)
	wantSame(t, "stale", stale, []int{0})
}

// backlog returns what is pending for a webhook, or for all.
func (t *tester) backlog(webhookID string) webhooks.Backlog {
	t.Helper()
	b, err := t.worker().Backlog(t.Context(), webhookID)
	t.must(err)
	return b
}

func (t *tester) deliveries(account, eventID string) []webhooks.Delivery {
	t.Helper()
	list, err := t.store.EventDeliveries(t.Context(), account, eventID)
	t.must(err)
	return list
}

// delivery returns the only delivery of an event.
func (t *tester) delivery(account, eventID string) webhooks.Delivery {
	t.Helper()
	list := t.deliveries(account, eventID)
	if len(list) != 1 {
		t.Fatalf("EventDeliveries of %q has %d deliveries, want 1", eventID, len(list))
	}
	return list[0]
}
