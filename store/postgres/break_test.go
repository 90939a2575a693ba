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

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/storetest"
)

// A meanwhile is a tracer that runs a function once, after the server has answered a given
// statement and before the store handles the answer.
type meanwhile struct {
	failures
	statement string // a part of the statement's text
	do        atomic.Pointer[func()]
	option    postgres.Option // selects the schema
}

func (m *meanwhile) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	if !strings.Contains(data.SQL, m.statement) {
		return
	}
	if do := m.do.Swap(nil); do != nil {
		(*do)()
	}
}

// opened opens a store that uses the meanwhile as its tracer, and creates one webhook.
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
func onlyTask(t *testing.T, s *postgres.Store) storetest.Task {
	t.Helper()
	publishOne(t, s, "evt")
	tasks := claimed(t, s)
	if len(tasks) != 1 {
		t.Fatalf("%d tasks", len(tasks))
	}
	return tasks[0]
}

func publishOne(t *testing.T, s *postgres.Store, id string) {
	t.Helper()
	if _, err := s.Enqueue(t.Context(), driver.EncodedEvent{ID: id, Account: "acct_wh_000000", Type: alerts.TypeBalanceLow, Body: []byte("{}")}); err != nil {
		t.Error(err)
	}
}

// A delivery is redelivered after its settlement is stored but before the node gets the answer. If
// the node reads the change in between, it must still deliver again.
func TestRedeliver_DuringSettle_IsDeliveredAgain(t *testing.T) {
	t.Parallel()
	m := &meanwhile{statement: "retried as ("}
	s := m.opened(t)
	task := onlyTask(t, s)
	do := func() {
		if err := s.Redeliver(t.Context(), task.Webhook.Account, task.Webhook.ID, task.Event.ID, audit.Entry{}); err != nil {
			t.Error(err)
		}
		if tasks := claimed(t, s); len(tasks) > 0 { // reads the change feed
			t.Errorf("%d deliveries were claimed beside their settlement", len(tasks))
		}
	}
	m.do.Store(&do)
	settleAs(t, s, task, driver.GiveUp)
	if m.do.Load() != nil {
		t.Fatal("nothing was done meanwhile")
	}
	var again []storetest.Task
	eventually(t, "what was redelivered is delivered", func() bool {
		again = claimed(t, s)
		return len(again) > 0
	})
	if again[0].Attempt != 2 || again[0].Before != 1 {
		t.Errorf("it is attempt %d after %d", again[0].Attempt, again[0].Before)
	}
}

// A webhook that has just been turned on stays on, even if a node then applies an earlier read in
// which the webhook was off.
func TestWebhook_OldStateReadLate_StaysEnabled(t *testing.T) {
	m := &meanwhile{statement: "as k (no)"}
	s := m.opened(t, postgres.PollEvery(time.Hour), postgres.PollOnly()) // only Load reads the webhook
	task := onlyTask(t, s)
	publishOne(t, s, "next")
	if b, err := storetest.WorkerOf(s).Backlog(t.Context(), ""); err != nil || b.Pending != 2 { // reads the change feed
		t.Fatalf("Backlog = %+v, %v; want 2 pending", b, err)
	}
	turn := func(s *postgres.Store, on bool) {
		if _, err := s.UpdateWebhook(t.Context(), task.Webhook.Account, task.Webhook.ID, func(w *driver.Webhook, _ *audit.Entry) error {
			w.Active = on
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	turn(open(t, m.option), false)
	do := func() { turn(s, true) }
	m.do.Store(&do)
	eventually(t, "a webhook that is on has its deliveries", func() bool { return len(claimed(t, s)) > 0 })
	if m.do.Load() != nil {
		t.Fatal("precondition failed: the webhook was not turned on while it was read as off")
	}
}

// The test turns off a webhook on one node while another node constantly reads changes. Afterwards
// the other node must claim nothing.
func TestClaim_TurnedOffElsewhere_BeginsNoAttempt(t *testing.T) {
	option := inSchema(t)
	s, other := open(t, option, postgres.PollEvery(time.Millisecond), postgres.PollOnly()), open(t, option)
	endpoints(t, s, 1)
	w := onlyTask(t, s).Webhook
	turn := func(on bool) {
		if _, err := other.UpdateWebhook(t.Context(), w.Account, w.ID, func(w *driver.Webhook, _ *audit.Entry) error {
			w.Active = on
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 30 {
		publishOne(t, other, fmt.Sprint("event ", i))
		turn(false)
		if tasks := claimed(t, s); len(tasks) > 0 {
			t.Fatalf("round %d: %d tasks for a webhook that is off, want none", i, len(tasks))
		}
		turn(true)
		eventually(t, "a webhook that is on has its deliveries", func() bool { return len(claimed(t, s)) > 0 })
	}
}

// After one of its processes is killed, a server numbers transactions from the last number that it
// has stored, so numbers repeat. Nodes must not mistake new transactions for earlier transactions
// with the same number.
func TestServerProcessKilled_TransactionNumbersRepeat_NoneIsMistaken(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server")
	}
	t.Parallel()
	p, c := migrated(t, "fsync=off", "wal_writer_delay=10s")
	s := openOn(t, p)
	endpoints(t, s, 1)
	onlyTask(t, s)

	conn, err := pgx.Connect(t.Context(), c.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for range 300 { // these transaction numbers are not stored on disk
		if _, err := conn.Exec(t.Context(), `begin; select pg_current_xact_id(); rollback`); err != nil {
			t.Fatal(err)
		}
	}
	s.Published("acct_wh_000000")
	if tasks := claimed(t, s); len(tasks) > 0 { // reads the change feed
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
		_, err := s.Enqueue(t.Context(), driver.EncodedEvent{ID: "after", Account: "acct_wh_000000", Type: alerts.TypeBalanceLow, Body: []byte("{}")})
		return err == nil
	})
	eventually(t, "it is delivered", func() bool {
		tasks, _ := storetest.WorkerOf(s).Claim(t.Context(), 10)
		return slices.ContainsFunc(tasks, func(task storetest.Task) bool { return task.Event.ID == "after" })
	})
}

// If a claim is interrupted after it has read that a webhook is off, later claims must still skip
// the webhook. Otherwise each claim would find the webhook's delivery and leave it, forever.
func TestClaim_Interrupted_StillSkipsDisabledWebhook(t *testing.T) {
	m := &meanwhile{statement: "as k (no)"}
	s := m.opened(t, postgres.PollEvery(time.Hour))
	onlyTask(t, s)
	publishOne(t, s, "next")
	if _, err := storetest.WorkerOf(s).Claim(t.Context(), 1); err != nil { // reads the change feed
		t.Fatal(err)
	}
	if _, err := open(t, m.option).UpdateWebhook(t.Context(), "acct_wh_000000", "wh_000000", func(w *driver.Webhook, _ *audit.Entry) error {
		w.Active = false
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	do := func() { cancel() }
	m.do.Store(&do)
	if tasks, err := storetest.WorkerOf(s).Claim(ctx, 1); len(tasks) > 0 || err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(tasks, err)
	}
	if tasks, err := storetest.WorkerOf(s).Claim(t.Context(), 1); len(tasks) > 0 || err != nil {
		t.Fatal(tasks, err)
	}
}
