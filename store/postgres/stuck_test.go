package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/storetest"
)

// If a network passes only small packets, a node's heartbeats arrive but their answers do not. The
// node must lose its shards, and take none until large packets pass.
func TestOwner_HeartbeatsUnanswered_LosesShards(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	a := newShardNodes(t, postgres.PollOnly())
	s, w := wiredBy(t, "narrow owner", 40, a.options...)
	narrow, other := a.on(t, s, testLasts), a.node(t)
	narrow.join()
	other.join()
	a.awaitBalance(t, narrow, other)
	claims, end := context.WithCancel(t.Context())
	var group sync.WaitGroup
	defer group.Wait()
	defer end()
	group.Go(func() { // claims as a dispatcher does
		for claims.Err() == nil {
			_ = narrow.Join(claims)
			time.Sleep(10 * time.Millisecond)
		}
	})
	w.narrows(0, 1400)
	t.Log("moved after", a.awaitBalance(t, other))
	before := a.epochs(t)
	for begun := time.Now(); time.Since(begun) < 2*testLasts; time.Sleep(50 * time.Millisecond) {
		if n := len(other.served()); n != shards {
			t.Fatalf("the other node serves %d shards while the first one's network is narrow, want all", n)
		}
	}
	if n := a.epochs(t) - before; n > 0 {
		t.Errorf("%d shards had new owners while the network was narrow", n)
	}
	w.narrows(0, 0)
	a.awaitBalance(t, narrow, other)
}

// A node also loses its shards if its heartbeats are answered but its claims or settlements are
// not.
func TestOwner_WorkUnanswered_LosesShards(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	for what, large := range map[string]struct{ body, response int }{
		"claims":      {body: 20 << 10},
		"settlements": {response: 20 << 10},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			const hooks, heartbeat = 20, 6 << 10
			option := inSchema(t)
			s, w := wiredBy(t, "narrow "+what, 40, option)
			other := open(t, option)
			endpoints(t, other, hooks)
			s.Lasts(testLasts)
			other.Lasts(testLasts)
			ctx, cancel := context.WithCancel(t.Context())
			var group sync.WaitGroup
			defer group.Wait()
			defer cancel()
			var mu sync.Mutex
			settled := make(map[string]bool)
			work := func(s *postgres.Store) {
				for ctx.Err() == nil {
					timed, cancel := context.WithTimeout(ctx, 2*time.Second)
					tasks, err := storetest.WorkerOf(s).Claim(timed, 5)
					cancel()
					if err != nil || len(tasks) == 0 {
						time.Sleep(20 * time.Millisecond)
						continue
					}
					var list []storetest.Settlement
					for _, task := range tasks {
						list = append(list, storetest.Settlement{Task: task, Effect: driver.Deliver, Attempt: driver.Attempt{
							Number: 1, StartedAt: time.Now(), Status: 200, Response: strings.Repeat("x", large.response),
						}})
					}
					for {
						timed, cancel := context.WithTimeout(ctx, 2*time.Second)
						stale, err := storetest.WorkerOf(s).Settle(timed, list)
						cancel()
						if err == nil {
							mu.Lock()
							for i, settlement := range list {
								settled[settlement.Task.Event.ID] = settled[settlement.Task.Event.ID] || len(stale) == 0 || i < stale[0]
							}
							mu.Unlock()
						}
						if err == nil || ctx.Err() != nil {
							break
						}
					}
				}
			}
			for _, s := range []*postgres.Store{s, other} {
				group.Go(func() { work(s) })
			}
			eventually(t, "both own shards", func() bool { return s.Shards() == shards/2 && other.Shards() == shards/2 })
			w.narrows(heartbeat, heartbeat)
			for i := range hooks {
				event := driver.EncodedEvent{
					ID: fmt.Sprint("event_", i), Account: fmt.Sprintf("acct_wh_%06d", i), Type: alerts.TypeBalanceLow, Body: make([]byte, large.body),
				}
				if n, err := other.Enqueue(t.Context(), event); n != 1 || err != nil {
					t.Fatalf("Enqueue = %d, %v", n, err)
				}
			}
			count := func() (n int) {
				mu.Lock()
				defer mu.Unlock()
				for _, is := range settled {
					if is {
						n++
					}
				}
				return n
			}
			begun := time.Now()
			for count() < hooks && time.Since(begun) < 40*time.Second {
				time.Sleep(10 * time.Millisecond)
			}
			if n := count(); n != hooks {
				t.Errorf("%d of %d events are settled after %v", n, hooks, time.Since(begun))
			}
			eventually(t, "the node has no shards", func() bool { return s.Shards() == 0 })
			t.Log("everything was settled after", time.Since(begun))
		})
	}
}
