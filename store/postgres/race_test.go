package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/storetest"
)

// failures records the errors of statements. When PostgreSQL ends a step because of a deadlock, the
// store repeats the step, so only this record shows the deadlock.
type failures struct {
	mu   sync.Mutex
	list []error
}

func (f *failures) add(err error) {
	if err != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.list = append(f.list, err)
	}
}

func (f *failures) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (f *failures) TraceQueryEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	f.add(data.Err)
}
func (f *failures) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}
func (f *failures) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	f.add(data.Err)
}
func (f *failures) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// A node can settle the deliveries that it has claimed even if other nodes claim, redeliver, change
// and purge the same deliveries and webhooks at the same time. No steps deadlock.
func TestSettle_ConcurrentChanges_DoesNotDeadlock(t *testing.T) {
	const hooks, events, rounds = 8, 80, 12
	option := inSchema(t)
	failed := &failures{}
	config := pool(t).Config()
	config.ConnConfig.Tracer, config.MaxConns = failed, 12
	p, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var nodes []*postgres.Store
	for range 4 {
		s, err := postgres.New(t.Context(), p, option)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		nodes = append(nodes, s)
	}
	endpoints(t, nodes[0], hooks)
	account := func(i int) string { return fmt.Sprintf("acct_wh_%06d", i%hooks) }
	event := func(round, i int) string { return fmt.Sprintf("evt_%d_%d", round, i) }

	for round := range rounds {
		border := time.Now().Add(-time.Hour) // Purge also ends deliveries in flight, but none here is that old
		for i := range events {
			if _, err := nodes[0].Enqueue(t.Context(), driver.EncodedEvent{ID: event(round, i), Account: account(i), Type: alerts.TypeBalanceLow}); err != nil {
				t.Fatal(err)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		var others sync.WaitGroup
		other := func(do func() error) {
			others.Go(func() {
				for ctx.Err() == nil {
					if err := do(); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		other(func() error { // claims that are never settled
			tasks, err := storetest.WorkerOf(nodes[2]).Claim(t.Context(), 3)
			storetest.WorkerOf(nodes[2]).Postpone(tasks...)
			return err
		})
		other(func() error { // has an effect only on settled deliveries
			i := rand.N(events)
			return nodes[3].Redeliver(t.Context(), account(i), fmt.Sprintf("wh_%06d", i%hooks), event(round, i), audit.Entry{})
		})
		other(func() error {
			i := rand.N(hooks)
			_, err := nodes[3].UpdateWebhook(t.Context(), account(i), fmt.Sprintf("wh_%06d", i), func(w *driver.Webhook, _ *audit.Entry) error {
				w.Active = true
				return nil
			})
			return err
		})
		other(func() error {
			_, err := nodes[2].Purge(t.Context(), driver.Purge{Payloads: border, Attempts: border, EventIDs: border, Limit: 50})
			return err
		})
		var settling sync.WaitGroup
		for _, s := range nodes[:2] {
			settling.Go(func() {
				for range events / 10 {
					tasks, err := storetest.WorkerOf(s).Claim(t.Context(), 10)
					if err != nil {
						t.Error(err)
						return
					}
					var list []storetest.Settlement
					for _, task := range tasks {
						list = append(list, storetest.Settlement{
							Task: task, Effect: []driver.Effect{driver.Retry, driver.Deliver, driver.GiveUp, storetest.Postpone}[rand.N(4)],
							RetryAfter: time.Microsecond,
							Attempt:    driver.Attempt{Number: task.Attempt, StartedAt: time.Now(), Class: driver.ClassConnect},
						})
					}
					rand.Shuffle(len(list), func(a, b int) { list[a], list[b] = list[b], list[a] })
					if stale, err := storetest.WorkerOf(s).Settle(t.Context(), list); err != nil || len(stale) > 0 {
						t.Errorf("%d of %d leases were lost within a minute, %v", len(stale), len(list), err)
					}
				}
			})
		}
		settling.Wait()
		stop()
		others.Wait()
	}
	failed.mu.Lock()
	defer failed.mu.Unlock()
	for _, err := range failed.list {
		t.Errorf("a statement failed: %v", err)
	}
}

// A delivery that is being attempted can be settled even if another node redelivers it and changes
// its webhook meanwhile.
func TestSettle_RedeliveredMeanwhile_Succeeds(t *testing.T) {
	option := inSchema(t)
	s, other := open(t, option), open(t, option)
	endpoints(t, s, 1)
	for i := range 5 {
		if _, err := s.Enqueue(t.Context(), driver.EncodedEvent{ID: fmt.Sprint(i), Account: "acct_wh_000000", Type: alerts.TypeBalanceLow}); err != nil {
			t.Fatal(err)
		}
	}
	tasks := claimed(t, s)
	for i := range tasks {
		if err := other.Redeliver(t.Context(), "acct_wh_000000", "wh_000000", fmt.Sprint(i), audit.Entry{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := other.UpdateWebhook(t.Context(), "acct_wh_000000", "wh_000000", func(w *driver.Webhook, _ *audit.Entry) error {
		w.URL = "https://example.com/elsewhere"
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if n := len(claimed(t, other)); n > 0 {
		t.Errorf("another node claimed %d of what is leased", n)
	}
	for _, task := range tasks {
		settleAs(t, s, task, driver.Deliver)
	}
	if left := claimed(t, s); len(left) > 0 {
		t.Errorf("%d are owed after all were delivered", len(left))
	}
}
