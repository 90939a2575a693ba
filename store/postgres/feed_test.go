package postgres_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/storetest"
)

// Each event is delivered once, no matter how late its transaction commits. Some transactions stay
// open while thousands of other events are published. These transactions must not delay other
// events, and the events published in them must not be missed.
func TestFeed_OpenTransactions_EachEventIsDeliveredOnce(t *testing.T) {
	t.Parallel()
	const others, transactionsOfHost, hooks = 2000, 30, 10
	option := inSchema(t)
	s, other := open(t, option), open(t, option)
	endpoints(t, s, hooks)
	event := func(kind string, i int) driver.EncodedEvent {
		return driver.EncodedEvent{
			ID: fmt.Sprintf("%s_%d", kind, i), Account: fmt.Sprintf("acct_wh_%06d", i%hooks), Type: alerts.TypeBalanceLow, Body: []byte("{}"),
		}
	}
	config := pool(t).Config()
	config.MaxConns = transactionsOfHost
	host, err := pgxpool.NewWithConfig(t.Context(), config) // for the open transactions
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(host.Close)
	seen := make(map[string]int)
	claim := func() {
		t.Helper()
		tasks, err := storetest.WorkerOf(s).Claim(t.Context(), 100)
		if err != nil {
			t.Fatal(err)
		}
		var settlements []storetest.Settlement
		for _, task := range tasks {
			seen[task.Event.ID]++
			settlements = append(settlements, storetest.Settlement{Task: task, Effect: driver.Deliver, Attempt: driver.Attempt{Number: task.Attempt, StartedAt: time.Now()}})
		}
		if stale, err := storetest.WorkerOf(s).Settle(t.Context(), settlements); err != nil || len(stale) > 0 {
			t.Fatal(stale, err)
		}
	}
	claim() // s owns all shards
	transactions := make(map[int]pgx.Tx)
	want := make(map[string]int)
	begin := func(i int) {
		tx, err := host.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback(t.Context()) })
		if _, err := s.EnqueueTx(t.Context(), tx, event("open", i)); err != nil {
			t.Fatal(err)
		}
		transactions[i] = tx
	}
	end := func() {
		for i, tx := range transactions {
			delete(transactions, i)
			if i%5 == 0 {
				_ = tx.Rollback(t.Context())
				return
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			want[event("open", i).ID] = 1
			return
		}
	}
	var group sync.WaitGroup
	for n, node := range []*postgres.Store{s, other} {
		group.Go(func() {
			for i := n; i < others; i += 2 {
				if _, err := node.Enqueue(t.Context(), event("other", i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	published := make(chan struct{})
	go func() { group.Wait(); close(published) }()
	for i := range others {
		want[event("other", i).ID] = 1
	}
	for i := 0; i < transactionsOfHost || len(transactions) > 4; i++ { // about four are open at a time, some for long
		if i < transactionsOfHost {
			begin(i)
		}
		if rand.N(2) == 0 || i >= transactionsOfHost {
			end()
		}
		claim()
	}
	<-published
	eventually(t, "what was published beside open transactions is delivered", func() bool {
		claim()
		return len(seen) == len(want)
	})
	for len(transactions) > 0 {
		end()
	}
	eventually(t, "what was committed last is delivered", func() bool {
		claim()
		return len(seen) >= len(want)
	})
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("deliveries (-want +got):\n%s", diff)
	}
}
