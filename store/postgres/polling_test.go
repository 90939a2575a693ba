package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/storetest"
)

// A worker claims and settles like the dispatcher, and counts the claimed deliveries.
type worker struct {
	store   *postgres.Store
	claimed atomic.Int64
}

// newWorker returns a node with separate connections that works until the test ends.
func newWorker(t *testing.T, option postgres.Option) *worker {
	t.Helper()
	p := &worker{store: withTracer(t, nil, option)}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	t.Cleanup(func() { cancel(); group.Wait() })
	group.Go(func() {
		dispatch(ctx, t, p.store, 100, func(tasks []storetest.Task) {
			p.claimed.Add(int64(len(tasks)))
			var list []storetest.Settlement
			for _, task := range tasks {
				list = append(list, storetest.Settlement{Task: task, Effect: driver.Deliver, Attempt: driver.Attempt{Number: task.Attempt, StartedAt: time.Now()}})
			}
			if _, err := storetest.WorkerOf(p.store).Settle(ctx, list); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
	})
	return p
}

// looksEvery returns the approximate interval at which the node reads the change feed.
func (p *worker) looksEvery(t *testing.T) time.Duration {
	t.Helper()
	every, err := p.store.ReadsEvery(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return every
}

// withTracer returns a node with separate, traced connections.
func withTracer(t *testing.T, tracer pgx.QueryTracer, option postgres.Option) *postgres.Store {
	t.Helper()
	config := pool(t).Config()
	config.ConnConfig.Tracer = tracer
	p, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return openOn(t, p, option)
}

// A node that is notified seldom reads the change feed, except while a host publishes in
// transactions.
func TestFeed_NotifiedNode_ReadsSeldom(t *testing.T) {
	option := inSchema(t)
	owner, other := newWorker(t, option), open(t, option)
	if err := other.CreateWebhook(t.Context(), newWebhook("acct", "a"), driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	seldom := func() bool { return owner.looksEvery(t) == time.Second }
	eventually(t, "a node that is notified looks seldom", seldom)
	err := pgx.BeginFunc(t.Context(), pool(t), func(tx pgx.Tx) error {
		_, err := other.EnqueueTx(t.Context(), tx, driver.EncodedEvent{ID: "event", Account: "acct", Type: alerts.TypeBalanceLow})
		eventually(t, "it looks often while a host publishes", func() bool { return owner.looksEvery(t) == 100*time.Millisecond })
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it claims the event", func() bool { return owner.claimed.Load() == 1 })
	eventually(t, "it looks seldom again", seldom)
}

// While nodes publish much, they poll and are not notified. When they publish little again, they
// are notified again.
func TestNodes_ManyPublications_Poll(t *testing.T) {
	option := inSchema(t)
	nodes := make([]*worker, 3)
	for i := range nodes {
		nodes[i] = newWorker(t, option)
	}
	seen := &notifying{}
	publisher := withTracer(t, seen, option)
	endpoints(t, publisher, 50)
	published := 0
	publish := func(n int) { // concurrently, so that even a busy machine publishes enough within a second
		t.Helper()
		var group sync.WaitGroup
		for range n {
			event := driver.EncodedEvent{
				ID: fmt.Sprint(published), Account: fmt.Sprintf("acct_wh_%06d", published%50), Type: alerts.TypeBalanceLow,
			}
			group.Go(func() {
				if _, err := publisher.Enqueue(t.Context(), event); err != nil {
					t.Error(err)
				}
			})
			published++
		}
		group.Wait()
	}
	notified := func() bool {
		seen.mu.Lock()
		defer seen.mu.Unlock()
		defer func() { seen.list = nil }()
		return len(seen.list) > 0
	}
	all := func() bool {
		claimed := int64(0)
		for _, node := range nodes {
			claimed += node.claimed.Load()
		}
		return claimed == int64(published)
	}
	eventually(t, "nodes poll, and are not notified", func() bool {
		notified()
		publish(100)
		return !notified()
	})
	eventually(t, "all is claimed", all)
	eventually(t, "nodes do not poll any more", func() bool { return nodes[0].looksEvery(t) >= 100*time.Millisecond })
	eventually(t, "they are notified", func() bool {
		publish(1)
		return notified()
	})
	eventually(t, "all is claimed", all)
}
