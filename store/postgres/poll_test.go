package postgres_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/webhooks"
)

// notifying keeps the statements that listen or notify.
type notifying struct {
	mu   sync.Mutex
	list []string
}

func (n *notifying) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if sql := strings.ToLower(data.SQL); strings.Contains(sql, "listen") || strings.Contains(sql, "notify") {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.list = append(n.list, sql)
	}
	return ctx
}
func (*notifying) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A node that only polls finds what others publish, and neither listens nor notifies.
func TestPollOnly(t *testing.T) {
	option := inSchema(t)
	seen := &notifying{}
	config := pool(t).Config()
	config.ConnConfig.Tracer = seen
	p, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	const every = 40 * time.Millisecond
	quiet, err := postgres.New(t.Context(), p, option, postgres.PollOnly(), postgres.PollEvery(every))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = quiet.Close() }()
	other := open(t, option)
	if err := other.CreateWebhook(t.Context(), newWebhook("acct", "a"), webhooks.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	quiet.Wake(t.Context(), func() { t.Error("a node that only polls was woken") })
	claim := func() []webhooks.Task {
		t.Helper()
		tasks, wait, err := quiet.ClaimDeliveries(t.Context(), webhooks.Claim{Limit: 9, Lease: time.Minute})
		if err != nil || wait > every*5/4 {
			t.Fatalf("ClaimDeliveries = wait %v, %v", wait, err)
		}
		return tasks
	}
	if n := len(claim()); n != 0 {
		t.Fatalf("claimed %d, want none", n)
	}
	enqueue := func(s *postgres.Store, id string) {
		t.Helper()
		if _, err := s.Enqueue(t.Context(), webhooks.EncodedEvent{ID: id, Account: "acct", Type: webhooks.TypeBalanceLow}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	woken := make(chan struct{}, 100)
	var group sync.WaitGroup
	group.Go(func() { other.Wake(ctx, func() { woken <- struct{}{} }) })
	<-woken // it listens
	enqueue(quiet, "first")
	enqueue(other, "second")
	<-woken // by what was published later
	cancel()
	group.Wait()
	if n := len(claim()); n != 2 {
		t.Errorf("claimed %d, want 2", n)
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if len(seen.list) > 0 {
		t.Errorf("a node that only polls sent %q", seen.list)
	}
}

// trips counts the round trips of a pool.
type trips struct{ n int }

func (c *trips) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n++
	return ctx
}
func (*trips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (c *trips) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	c.n++
	return ctx
}
func (*trips) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*trips) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// A node that has nothing to do asks once in a while, in one round trip, and nodes
// drift apart.
func TestIdle(t *testing.T) {
	option := inSchema(t)
	counted := &trips{}
	config := pool(t).Config()
	config.ConnConfig.Tracer = counted
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false } // after a while without use
	p, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	s, err := postgres.New(t.Context(), p, option)
	if err != nil {
		t.Fatal(err)
	}
	s.RenewNever()                     // a claim that took long would see if it is time to
	endpoints(t, open(t, option), 100) // in all shards
	waits := map[time.Duration]bool{}
	for range 20 {
		before := counted.n
		tasks, wait, err := s.ClaimDeliveries(t.Context(), webhooks.Claim{Limit: 9, PerAccount: 9, Lease: time.Minute})
		if err != nil || len(tasks) > 0 || wait < 75*time.Millisecond || wait > 125*time.Millisecond {
			t.Fatalf("ClaimDeliveries = %d tasks, wait %v, %v", len(tasks), wait, err)
		}
		if n := counted.n - before; n != 1 {
			t.Errorf("a claim of nothing took %d round trips, want 1", n)
		}
		waits[wait] = true
	}
	if len(waits) < 2 {
		t.Error("all waits are the same")
	}
}
