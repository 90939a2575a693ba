package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/storetest"
	"github.com/storageapi/storageapi/webhooks"
)

// claimed claims the due deliveries of a node.
func claimed(t *testing.T, s *postgres.Store) []storetest.Task {
	t.Helper()
	tasks, err := storetest.WorkerOf(s).Claim(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	return tasks
}

// dispatch claims whenever deliveries are due, until ctx ends or a claim fails.
func dispatch(ctx context.Context, t testing.TB, s store.Store, limit int, tell func(tasks []storetest.Task), webhookIDs ...string) {
	for ctx.Err() == nil {
		tasks, err := storetest.WorkerOf(s).Await(ctx, limit, webhookIDs...)
		if err != nil {
			if ctx.Err() == nil {
				t.Error(err)
			}
			return
		}
		tell(tasks)
	}
}

func settleAs(t *testing.T, s store.Store, task storetest.Task, outcome driver.Effect) {
	t.Helper()
	stale, err := storetest.WorkerOf(s).Settle(t.Context(), []storetest.Settlement{{
		Task: task, Effect: outcome,
		Attempt: driver.Attempt{Number: task.Attempt, StartedAt: time.Now(), Class: driver.ClassConnect},
	}})
	if err != nil || len(stale) > 0 {
		t.Fatal(stale, err)
	}
}

// A plan made while the queue is empty must not read the whole queue once it is full.
func TestPlans_MadeWhileQueueIsEmpty_AvoidFullScans(t *testing.T) {
	t.Parallel()
	name, option := migratedSchema(t)
	p, err := pgxpool.NewWithConfig(t.Context(), pool(t).Config())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	s, err := postgres.New(t.Context(), p, option)
	if err != nil {
		t.Fatal(err)
	}
	endpoints(t, s, 50)
	service, err := webhooks.New(s, webhooks.Config{Events: alerts.Events()})
	if err != nil {
		t.Fatal(err)
	}
	settled := 0
	round := func() {
		if err := service.Publish(t.Context(), lowBalance("acct_wh_000001", "")); err != nil {
			t.Fatal(err)
		}
		for _, task := range claimed(t, s) {
			settleAs(t, s, task, driver.Effect(2+settled%2))
			settled++
		}
	}
	for range 20 {
		round()
	}
	const owed = 50_000
	fill(t, pool(t), name, owed)
	for range 10 {
		round()
	}
	if settled < 500 {
		t.Fatalf("%d were settled, want more", settled)
	}
	storetest.WorkerOf(s).Close()
	p.Close() // the server then updates its statistics of these connections
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		var counted, read int
		var most string
		err := pool(t).QueryRow(t.Context(), `
			select sum(n_tup_del) filter (where relname = 'pending'), max(seq_tup_read), (array_agg(relname order by seq_tup_read desc))[1]
			from pg_stat_user_tables where schemaname = $1 and relname = any($2::text[])`, name, grown).Scan(&counted, &read, &most)
		if err != nil {
			t.Fatal(err)
		}
		if read >= owed {
			t.Fatalf("%d rows of %s were read in tables read through", read, most)
		}
		if counted >= settled*9/10 { // the statistics of PostgreSQL 14 may lose some under load
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the server has counted %d of %d that were settled", counted, settled)
		}
	}
}

// Concurrent settlements that record failures of the same webhooks do not deadlock, regardless of
// their order. PostgreSQL would take a second to detect each deadlock.
func TestSettle_AnyOrder_DoesNotDeadlock(t *testing.T) {
	const hooks, settlers, rounds = 20, 3, 15
	option := inSchema(t)
	s := open(t, option)
	endpoints(t, s, hooks)
	service, err := webhooks.New(s, webhooks.Config{Events: alerts.Events()})
	if err != nil {
		t.Fatal(err)
	}
	deadlocks := func() (n int) {
		if err := pool(t).QueryRow(t.Context(), `select deadlocks from pg_stat_database where datname = current_database()`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := deadlocks()
	for range rounds {
		for i := range hooks * settlers {
			if err := service.Publish(t.Context(), lowBalance(fmt.Sprintf("acct_wh_%06d", i%hooks), "")); err != nil {
				t.Fatal(err)
			}
		}
		tasks := claimed(t, s)
		var group sync.WaitGroup
		for i := range settlers {
			var mine []storetest.Settlement
			for j, task := range tasks {
				if j%settlers == i {
					mine = append(mine, storetest.Settlement{
						Task: task, Effect: driver.GiveUp,
						Attempt: driver.Attempt{Number: task.Attempt, StartedAt: time.Now(), Class: driver.ClassConnect},
					})
				}
			}
			rand.Shuffle(len(mine), func(a, b int) { mine[a], mine[b] = mine[b], mine[a] })
			group.Go(func() {
				if stale, err := storetest.WorkerOf(s).Settle(t.Context(), mine); err != nil || len(stale) > 0 {
					t.Errorf("Settle = %v, %v", stale, err)
				}
			})
		}
		group.Wait()
	}
	if n := deadlocks() - before; n > 0 {
		t.Errorf("%d deadlocks", n)
	}
}
