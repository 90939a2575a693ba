package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/storetest"
	"github.com/storageapi/storageapi/webhooks"
)

// A node that listens looks seldom, but as often as PollEvery says while hosts publish in transactions, and
// while a transaction of that time is open.
func TestFrequency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const poll = 100 * time.Millisecond
		p := postgres.NewFrequency()
		want := func(what string, want time.Duration) {
			t.Helper()
			if got := p.Every(poll); got != want {
				t.Errorf("%s it looks every %v, want %v", what, got, want)
			}
		}
		want("while it does not listen", poll)
		p.Listen(1)
		want("while it listens", time.Second)
		if got := p.Every(time.Hour); got != time.Hour {
			t.Errorf("with a PollEvery of an hour it looks every %v", got)
		}
		p.HostPublishes()
		want("while hosts publish", poll)
		p.Looked(50, 60)
		time.Sleep(1900 * time.Millisecond)
		want("1.9 s later", poll)
		p.Looked(55, 70)
		time.Sleep(200 * time.Millisecond)
		want("2.1 s later, while 55 is open,", poll)
		p.Looked(69, 80)
		want("while 69 is open", poll)
		p.Looked(70, 80)
		want("once all before 70 have ended", time.Second)
		p.Listen(-1)
		want("once it does not listen any more", poll)
	})
}

// A node polls if much is found that others have published, the sooner the more nodes there are.
func TestFrequencyOfPolling(t *testing.T) {
	for _, test := range []struct {
		name  string
		nodes int
		found int // a second, by others
		own   int // as many more by itself
		polls bool
		every time.Duration // how often it looks then
	}{
		{"one node", 1, 8000, 0, false, 0},
		{"two nodes, little", 2, 1200, 0, false, 0},
		{"two nodes, much", 2, 1300, 0, true, 8 * time.Millisecond},
		{"four nodes, own events", 4, 10, 5000, false, 0},
		{"sixteen nodes, little", 16, 19, 0, false, 0},
		{"sixteen nodes, some", 16, 25, 1, true, 64 * time.Millisecond},
		{"sixteen nodes, more", 16, 50, 4, true, 40 * time.Millisecond},
		{"sixteen nodes, much", 16, 250, 20, true, 8 * time.Millisecond},
		{"many nodes, little", 100, 4, 0, false, 0},
		{"many nodes, some", 100, 10, 0, true, 64 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := postgres.NewFrequency()
				p.Listen(1)
				transaction := int64(1)
				second := func(found, own int) {
					p.Own(own)
					p.Found(transaction, found+own)
					transaction += int64(found + own)
					time.Sleep(time.Second)
				}
				if p.Polls(test.nodes) {
					t.Error("it polls at once")
				}
				second(test.found, test.own)
				if got := p.Polls(test.nodes); got != test.polls {
					t.Fatalf("polls: %v, want %v", got, test.polls)
				}
				if !test.polls {
					return
				}
				want := func(what string, want time.Duration) {
					t.Helper()
					if got := p.Every(time.Second).Round(time.Millisecond); got != want {
						t.Errorf("%s it looks every %v, want %v", what, got, want)
					}
				}
				want("at first", test.every)
				second(test.found*6/10, test.own)
				if !p.Polls(test.nodes) {
					t.Error("it polls no more with six tenths of that")
				}
				second(0, 0)
				if p.Polls(test.nodes) {
					t.Error("it polls though nothing is found")
				}
				if p.Every(time.Second) > 64*time.Millisecond {
					t.Error("it does not poll for as long as others may not know that it need be notified")
				}
				time.Sleep(6 * time.Second)
				want("6 s later", time.Second)
			})
		})
	}
}

// A worker claims and settles as the dispatcher does, and notes what it was told to wait.
type worker struct {
	store   *postgres.Store
	claimed atomic.Int64
}

// newWorker returns a node that works until the test ends, with connections of its own.
func newWorker(t *testing.T, option postgres.Option, set ...func(*postgres.Store)) *worker {
	t.Helper()
	p := &worker{store: withTracer(t, nil, option)}
	for _, set := range set {
		set(p.store)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	t.Cleanup(func() { cancel(); group.Wait() })
	group.Go(func() {
		dispatch(ctx, t, p.store, 100, func(tasks []storetest.Task) {
			p.claimed.Add(int64(len(tasks)))
			var list []storetest.Settlement
			for _, task := range tasks {
				list = append(list, storetest.Settlement{Task: task, Outcome: webhooks.Deliver, Attempt: webhooks.Attempt{Number: task.Attempt, StartedAt: time.Now()}})
			}
			if _, err := storetest.WorkerOf(p.store).Settle(ctx, list); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
	})
	return p
}

// looksEvery returns about how often the node looks.
func (p *worker) looksEvery(t *testing.T) time.Duration {
	t.Helper()
	every, err := p.store.LooksEvery(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return every
}

// withTracer returns a node with connections of its own.
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

// A node that is notified looks seldom, but often while a host publishes in transactions.
func TestLooksAreSeldom(t *testing.T) {
	option := inSchema(t)
	owner, other := newWorker(t, option), open(t, option)
	if err := other.CreateWebhook(t.Context(), newWebhook("acct", "a"), webhooks.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	seldom := func() bool { return owner.looksEvery(t) == time.Second }
	eventually(t, "a node that is notified looks seldom", seldom)
	err := pgx.BeginFunc(t.Context(), pool(t), func(tx pgx.Tx) error {
		_, err := other.EnqueueTx(t.Context(), tx, webhooks.EncodedEvent{ID: "event", Account: "acct", Type: webhooks.TypeBalanceLow})
		eventually(t, "it looks often while a host publishes", func() bool { return owner.looksEvery(t) == 100*time.Millisecond })
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it claims the event", func() bool { return owner.claimed.Load() == 1 })
	eventually(t, "it looks seldom again", seldom)
}

// Nodes among which much is published poll, and nobody notifies them; once there is little they are
// notified again.
func TestNodesPoll(t *testing.T) {
	option := inSchema(t)
	nodes := make([]*worker, 3)
	for i := range nodes {
		nodes[i] = newWorker(t, option, func(s *postgres.Store) { s.PollFrom(1) })
	}
	seen := &notifying{}
	publisher := withTracer(t, seen, option)
	endpoints(t, publisher, 50)
	published := 0
	publish := func(n int) {
		t.Helper()
		for range n {
			if _, err := publisher.Enqueue(t.Context(), webhooks.EncodedEvent{
				ID: fmt.Sprint(published), Account: fmt.Sprintf("acct_wh_%06d", published%50), Type: webhooks.TypeBalanceLow,
			}); err != nil {
				t.Fatal(err)
			}
			published++
		}
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
		publish(20)
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
