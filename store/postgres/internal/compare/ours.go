//go:build unix

package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/storetest"
)

// ours is this library's queue.
type ours struct {
	nodes    []*postgres.Store
	webhooks int // number of webhooks, each with its own account
	inserted atomic.Int64
}

func newOurs(ctx context.Context, pool *pgxpool.Pool, hooks int) (*ours, error) {
	if err := postgres.Migrate(ctx, pool); err != nil {
		return nil, err
	}
	q := &ours{webhooks: hooks}
	for range 4 {
		s, err := postgres.New(ctx, pool)
		if err != nil {
			return nil, err
		}
		q.nodes = append(q.nodes, s)
	}
	err := inParallel(ctx, hooks, func(i int) error { return q.subscribe(ctx, "", i) })
	if err == nil {
		err = inParallel(ctx, many, func(i int) error { return q.subscribe(ctx, "many", i) })
	}
	return q, err
}

// subscribe creates a webhook of account, or of a new account if account is empty.
func (q *ours) subscribe(ctx context.Context, account string, i int) error {
	id := fmt.Sprintf("wh_%s%06d", account, i)
	if account == "" {
		account = fmt.Sprintf("acct_%06d", i)
	}
	return q.nodes[0].CreateWebhook(ctx, driver.Webhook{
		ID: id, Account: account, URL: "https://example.com/" + id, Events: []driver.EventType{alerts.TypeBalanceLow},
		WebhookHealth: driver.WebhookHealth{Active: true}, Secret: signing.NewSecret(), CreatedAt: time.Now(),
	}, driver.CreateOptions{})
}

func (q *ours) close() {
	for _, s := range q.nodes {
		_ = s.Close()
	}
}

func (*ours) name() string { return "storageapi" }

func (q *ours) insert(ctx context.Context, n int) error {
	return inParallel(ctx, n, func(i int) error { return q.enqueue(ctx, fmt.Sprintf("acct_%06d", i*7919%q.webhooks), 1) })
}

func (q *ours) insertMany(ctx context.Context, n int) error {
	for i := 0; i < n; i += many {
		if err := q.enqueue(ctx, "many", many); err != nil {
			return err
		}
	}
	return nil
}

func (q *ours) enqueue(ctx context.Context, account string, deliveries int) error {
	got, err := q.nodes[0].Enqueue(ctx, driver.EncodedEvent{
		ID: fmt.Sprintf("evt_%026d", q.inserted.Add(1)), Account: account, Type: alerts.TypeBalanceLow, Timestamp: time.Now(), Body: []byte(body),
	})
	if err == nil && got != deliveries {
		err = fmt.Errorf("got %d pending deliveries, want %d", got, deliveries)
	}
	return err
}

func (q *ours) work(ctx context.Context, n, nodes, slots int) error {
	var left atomic.Int64
	left.Store(int64(n))
	group, ctx := errgroup.WithContext(ctx)
	claiming, worked := context.WithCancel(ctx)
	defer worked()
	for _, s := range q.nodes[:nodes] {
		claimed := make(chan []storetest.Task) // half of the slots claim, half settle
		group.Go(func() error {
			defer close(claimed)
			for {
				tasks, err := storetest.WorkerOf(s).Await(claiming, slots/2)
				if claiming.Err() != nil { // all work is done, or ctx has ended
					return ctx.Err()
				}
				if err != nil {
					return err
				}
				select {
				case claimed <- tasks:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		})
		group.Go(func() error {
			for tasks := range claimed {
				settled, err := settle(ctx, s, tasks)
				if err != nil {
					return err
				}
				if left.Add(-int64(settled)) <= 0 {
					worked()
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// settle settles tasks, and returns how many it settled. The other tasks are stale: another node
// has taken over their webhooks and claims them again.
func settle(ctx context.Context, s *postgres.Store, tasks []storetest.Task) (int, error) {
	var list []storetest.Settlement
	for _, task := range tasks {
		if string(task.Event.Body) != body {
			return 0, fmt.Errorf("unexpected event body %q", task.Event.Body)
		}
		list = append(list, storetest.Settlement{Task: task, Effect: driver.Deliver, Attempt: driver.Attempt{Number: task.Attempt, StartedAt: time.Now(), Status: 200}})
	}
	stale, err := storetest.WorkerOf(s).Settle(ctx, list)
	return len(list) - len(stale), err
}

// inParallel calls do with 0 to n-1 from several goroutines.
func inParallel(ctx context.Context, n int, do func(i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for worker := range publishers {
		group.Go(func() error {
			for i := worker; i < n && ctx.Err() == nil; i += publishers {
				if err := do(i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}
