package postgres_test

import (
	"context"
	"strings"
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

// notifying records the statements that listen or notify.
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

// A node that only polls finds the events that other nodes publish, and neither listens nor
// notifies.
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
	if err := other.CreateWebhook(t.Context(), newWebhook("acct", "a"), driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	claim := func() []storetest.Task {
		t.Helper()
		tasks, err := storetest.WorkerOf(quiet).Claim(t.Context(), 9)
		if err != nil {
			t.Fatal(err)
		}
		return tasks
	}
	if n := len(claim()); n != 0 {
		t.Fatalf("claimed %d, want none", n)
	}
	enqueue := func(s *postgres.Store, id string) {
		t.Helper()
		if _, err := s.Enqueue(t.Context(), driver.EncodedEvent{ID: id, Account: "acct", Type: alerts.TypeBalanceLow}); err != nil {
			t.Fatal(err)
		}
	}
	enqueue(quiet, "first")
	enqueue(other, "second")
	n := 0
	eventually(t, "both are found", func() bool {
		n += len(claim())
		return n == 2
	})
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if len(seen.list) > 0 {
		t.Errorf("a node that only polls sent %q", seen.list)
	}
}

// looks counts the statements of a pool that read the change feed or begin loading shards.
type looks struct{ n atomic.Int64 }

func (c *looks) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	c.count(data.SQL)
	return ctx
}
func (*looks) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (c *looks) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}
func (c *looks) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	c.count(data.SQL)
}
func (*looks) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (c *looks) count(sql string) {
	if strings.Contains(sql, "pg_current_snapshot") {
		c.n.Add(1)
	}
}

// An idle node reads the change feed at intervals, with one statement, and the reads of different
// nodes drift apart.
func TestIdleNode_ReadsFeedAtIntervals(t *testing.T) {
	option := inSchema(t)
	counted := &looks{}
	config := pool(t).Config()
	config.ConnConfig.Tracer = counted
	p, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	s, err := postgres.New(t.Context(), p, option)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	endpoints(t, open(t, option), 100)                                                           // in all shards
	if tasks, err := storetest.WorkerOf(s).Claim(t.Context(), 9); err != nil || len(tasks) > 0 { // loads the shards
		t.Fatal(tasks, err)
	}
	const rounds = 20
	first := counted.n.Load()
	time.Sleep(rounds * 75 * time.Millisecond)
	if n := counted.n.Load() - first; n < rounds/2 || n > rounds*3/2 {
		t.Errorf("a node that has nothing to do looked %d times, want about %d", n, rounds)
	}
}
