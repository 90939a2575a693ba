package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/webhooks"
)

// A meanwhile does something once, between the answer to a statement and what follows from it.
type meanwhile struct {
	failures
	statement string // a part of it
	do        atomic.Pointer[func()]
	option    postgres.Option // of the schema
}

func (m *meanwhile) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	if !strings.Contains(data.SQL, m.statement) {
		return
	}
	if do := m.do.Swap(nil); do != nil {
		(*do)()
	}
}

// opened opens a store for it, with one webhook.
func (m *meanwhile) opened(t *testing.T, options ...postgres.Option) *postgres.Store {
	t.Helper()
	m.option = inSchema(t)
	config := pool(t).Config()
	config.ConnConfig.Tracer, config.MaxConns = m, 8
	p, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	s, err := postgres.New(t.Context(), p, append(options, m.option)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	endpoints(t, s, 1)
	return s
}

// onlyTask publishes an event, and claims its delivery.
func onlyTask(t *testing.T, s *postgres.Store) webhooks.Task {
	t.Helper()
	publishOne(t, s, "evt")
	tasks := claimed(t, s, webhooks.Claim{})
	if len(tasks) != 1 {
		t.Fatalf("%d tasks", len(tasks))
	}
	return tasks[0]
}

func publishOne(t *testing.T, s *postgres.Store, id string) {
	t.Helper()
	if _, err := s.Enqueue(t.Context(), webhooks.EncodedEvent{ID: id, Account: "acct_wh_000000", Type: webhooks.TypeBalanceLow, Body: []byte("{}")}); err != nil {
		t.Error(err)
	}
}

// What is redelivered once its settlement is stored, and read before the node has heard of that, is
// delivered again.
func TestRedeliverBesideSettling(t *testing.T) {
	m := &meanwhile{statement: "retried as ("}
	s := m.opened(t)
	task := onlyTask(t, s)
	do := func() {
		if err := s.Redeliver(t.Context(), task.Webhook.Account, task.Webhook.ID, task.Event.ID, notices.Notice{}); err != nil {
			t.Error(err)
		}
		if tasks := claimed(t, s, webhooks.Claim{}); len(tasks) > 0 { // it looks
			t.Errorf("%d deliveries were claimed beside their settlement", len(tasks))
		}
	}
	m.do.Store(&do)
	settleAs(t, s, task, webhooks.GiveUp, 0)
	if m.do.Load() != nil {
		t.Fatal("nothing was done meanwhile")
	}
	var again []webhooks.Task
	eventually(t, "what was redelivered is delivered", func() bool {
		again = claimed(t, s, webhooks.Claim{})
		return len(again) > 0
	})
	if again[0].Attempt != 2 || again[0].Before != 1 {
		t.Errorf("it is attempt %d after %d", again[0].Attempt, again[0].Before)
	}
}

// A webhook that was turned on just now stays on, though a node has read before that it is off.
func TestWebhookReadLate(t *testing.T) {
	m := &meanwhile{statement: "as k (no)"}
	s := m.opened(t, postgres.PollEvery(time.Hour), postgres.PollOnly()) // only the load reads it
	task := onlyTask(t, s)
	publishOne(t, s, "next")
	if b, err := s.Backlog(t.Context(), ""); err != nil || b.Pending != 2 { // it looks
		t.Fatalf("Backlog = %+v, %v; want 2 pending", b, err)
	}
	turn := func(s *postgres.Store, on bool) {
		if _, err := s.UpdateWebhook(t.Context(), task.Webhook.Account, task.Webhook.ID, func(w *webhooks.Webhook, _ *notices.Notice) error {
			w.Active = on
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	turn(open(t, m.option), false)
	do := func() { turn(s, true) }
	m.do.Store(&do)
	if tasks := claimed(t, s, webhooks.Claim{}); len(tasks) > 0 {
		t.Fatalf("%d deliveries were claimed of a webhook that was read as off", len(tasks))
	}
	if m.do.Load() != nil {
		t.Fatal("nothing was done meanwhile")
	}
	eventually(t, "a webhook that is on has its deliveries", func() bool { return len(claimed(t, s, webhooks.Claim{})) > 0 })
}

// TestClaim_TurnedOffElsewhere_BeginsNoAttempt turns a webhook off on another node, while this one
// reads changes all the time, and then claims.
func TestClaim_TurnedOffElsewhere_BeginsNoAttempt(t *testing.T) {
	option := inSchema(t)
	s, other := open(t, option, postgres.PollEvery(time.Millisecond), postgres.PollOnly()), open(t, option)
	endpoints(t, s, 1)
	w := onlyTask(t, s).Webhook
	turn := func(on bool) {
		if _, err := other.UpdateWebhook(t.Context(), w.Account, w.ID, func(w *webhooks.Webhook, _ *notices.Notice) error {
			w.Active = on
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 30 {
		publishOne(t, other, fmt.Sprint("event ", i))
		turn(false)
		if tasks := claimed(t, s, webhooks.Claim{}); len(tasks) > 0 {
			t.Fatalf("round %d: %d tasks for a webhook that is off, want none", i, len(tasks))
		}
		turn(true)
		eventually(t, "a webhook that is on has its deliveries", func() bool { return len(claimed(t, s, webhooks.Claim{})) > 0 })
	}
}

// A server whose process was killed goes on, and counts transactions anew from what it has stored: none
// that follow are taken for those that were read before.
func TestCrashOfAServerProcess(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server")
	}
	p, c := migrated(t, "fsync=off", "wal_writer_delay=10s")
	s := openOn(t, p)
	endpoints(t, s, 1)
	onlyTask(t, s)

	conn, err := pgx.Connect(t.Context(), c.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for range 300 { // which it will not have stored
		if _, err := conn.Exec(t.Context(), `begin; select pg_current_xact_id(); rollback`); err != nil {
			t.Fatal(err)
		}
	}
	s.Published("acct_wh_000000")
	if tasks := claimed(t, s, webhooks.Claim{}); len(tasks) > 0 { // it looks
		t.Fatal(tasks)
	}
	process, err := os.FindProcess(int(conn.PgConn().PID()))
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Kill(); err != nil {
		t.Skip(err)
	}
	eventually(t, "an event is published after the crash", func() bool {
		_, err := s.Enqueue(t.Context(), webhooks.EncodedEvent{ID: "after", Account: "acct_wh_000000", Type: webhooks.TypeBalanceLow, Body: []byte("{}")})
		return err == nil
	})
	eventually(t, "it is delivered", func() bool {
		tasks, _, _ := s.ClaimDeliveries(t.Context(), webhooks.Claim{Limit: 10, Lease: time.Minute})
		return slices.ContainsFunc(tasks, func(task webhooks.Task) bool { return task.Event.ID == "after" })
	})
}

// A node that claims no more leaves its shards, though it has leases that nobody settled: they have run
// out.
func TestAbandonedLeasesKeepNoShards(t *testing.T) {
	option := inSchema(t)
	s, other := open(t, option), open(t, option)
	s.Lasts(time.Second)
	s.Idles(time.Second)
	endpoints(t, s, 1)
	publishOne(t, s, "evt")
	tasks, _, err := s.ClaimDeliveries(t.Context(), webhooks.Claim{Limit: 1, Lease: 100 * time.Millisecond})
	if err != nil || len(tasks) != 1 {
		t.Fatal(tasks, err)
	}
	eventually(t, "another node attempts what was abandoned", func() bool { return len(claimed(t, other, webhooks.Claim{})) > 0 })
}

// A claim that was cut short after it had read that a webhook is off does not keep the next ones from
// passing the webhook over: they would find the delivery, and leave it, without end.
func TestClaimCutShort(t *testing.T) {
	m := &meanwhile{statement: "as k (no)"}
	s := m.opened(t, postgres.PollEvery(time.Hour))
	onlyTask(t, s)
	publishOne(t, s, "next")
	if _, _, err := s.ClaimDeliveries(t.Context(), webhooks.Claim{Limit: 1, Cap: each(0), Lease: time.Minute}); err != nil { // it looks
		t.Fatal(err)
	}
	if _, err := open(t, m.option).UpdateWebhook(t.Context(), "acct_wh_000000", "wh_000000", func(w *webhooks.Webhook, _ *notices.Notice) error {
		w.Active = false
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	do := func() { cancel() }
	m.do.Store(&do)
	if tasks, _, err := s.ClaimDeliveries(ctx, webhooks.Claim{Limit: 1, Lease: time.Minute}); len(tasks) > 0 || err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(tasks, err)
	}
	eventually(t, "claims pass the webhook over", func() bool {
		tasks, wait, err := s.ClaimDeliveries(t.Context(), webhooks.Claim{Limit: 1, Lease: time.Minute})
		if len(tasks) > 0 || err != nil {
			t.Fatal(tasks, err)
		}
		return wait > 0
	})
}

// A node that looks seldom keeps its shards until it has looked again.
func TestSeldomLooksKeepShards(t *testing.T) {
	option := inSchema(t)
	s := open(t, option, postgres.PollEvery(2*time.Second))
	s.Lasts(400 * time.Millisecond)
	s.Idles(100 * time.Millisecond)
	claimed(t, s, webhooks.Claim{})
	owned := 256
	for end := time.Now().Add(2 * time.Second); owned == 256 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if err := pool(t).QueryRow(t.Context(), `select count(*) from `+quoted(postgres.SchemaOf(option))+`.shard_owners where node <> 0`).Scan(&owned); err != nil {
			t.Fatal(err)
		}
	}
	if owned != 256 {
		t.Errorf("it owns %d shards while it waits to look", owned)
	}
}
