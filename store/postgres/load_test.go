package postgres_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/storetest"
)

// slowRows returns a pool of connections with a statement timeout. In their schema, the server
// delays each read of pending deliveries as listed in the table "waits": see pile.
func slowRows(t *testing.T, timeout time.Duration) *pgxpool.Pool {
	t.Helper()
	role, _ := newRole(t, `create schema `+quoted(postgres.DefaultSchema)+` authorization {}`)
	config := role.Config()
	p, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	if err := postgres.Migrate(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	execOn(t, p, `
		create table storageapi.waits (webhook bigint primary key, seconds double precision);
		create function storageapi.slowly(no bigint) returns boolean language plpgsql set enable_seqscan = off as $$
			begin
				perform pg_sleep(seconds) from storageapi.waits where webhook = no;
				return true;
			end $$;
		alter table storageapi.pending rename to pending_rows;
		create view storageapi.pending as select * from storageapi.pending_rows where storageapi.slowly(webhook)`)
	config.ConnConfig.RuntimeParams["statement_timeout"] = fmt.Sprint(timeout.Milliseconds())
	slow, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(slow.Close)
	return slow
}

func execOn(t testing.TB, p *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := p.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// pile adds n pending deliveries to the account's webhook, due in an hour. The server takes the
// time each to read one of them. Their events, numbered from first, have no other rows. If first is
// 1, the numbers are lower than those of all other events; if it is laterEvent, they are higher.
func pile(t testing.TB, p *pgxpool.Pool, account string, first int64, n int, each time.Duration) {
	t.Helper()
	webhook := "wh_" + account
	err := pgx.BeginFunc(t.Context(), p, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `
			insert into storageapi.pending (webhook, event, shard, recovered, due, attempts, before)
			select no, ($4 + i) * 4096, $2, false, now() + interval '1 hour', 1, 0
			from storageapi.webhooks cross join generate_series(1, $3::bigint) i where id = $1`, webhook, postgres.ShardOf(account), n, first); err != nil {
			return err
		}
		if each == 0 {
			return nil
		}
		_, err := tx.Exec(t.Context(), `insert into storageapi.waits select no, $2 from storageapi.webhooks where id = $1`, webhook, each.Seconds())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// laterEvent is the microsecond of an event in 2050.
const laterEvent = 30 * 365 * 24 * 3600 * 1_000_000

func storeOn(t testing.TB, p *pgxpool.Pool, options ...postgres.Option) *postgres.Store {
	t.Helper()
	s, err := postgres.New(t.Context(), p, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// accountsIn creates n accounts in different shards, each with one webhook. beside is another
// account, in the shard of the first one.
func accountsIn(t testing.TB, s *postgres.Store, n int) (accounts []string, beside string) {
	t.Helper()
	in := make(map[int16]string)
	for i := 0; beside == ""; i++ {
		account := fmt.Sprint("acct_", i)
		other, known := in[postgres.ShardOf(account)]
		switch {
		case known && other == accounts[0]:
			beside = account
		case known || len(accounts) == n:
			continue
		default:
			in[postgres.ShardOf(account)] = account
			accounts = append(accounts, account)
		}
		if err := s.CreateWebhook(t.Context(), newWebhook(account, "wh_"+account), driver.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return accounts, beside
}

// logLines keeps all log lines.
type logLines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logLines) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(strings.Lines(l.text.String()))
}

func (l *logLines) option() postgres.Option {
	return postgres.Logger(slog.New(slog.NewTextHandler(l, nil)))
}

// publishTo publishes an event for the account, which must have one webhook.
func publishTo(t testing.TB, s *postgres.Store, account, id string) {
	t.Helper()
	event := driver.EncodedEvent{ID: id, Account: account, Type: alerts.TypeBalanceLow, Body: []byte("{}")}
	if n, err := s.Enqueue(t.Context(), event); n != 1 || err != nil {
		t.Fatalf("Enqueue = %d, %v", n, err)
	}
}

// claimsUntil claims like the dispatcher, until it has claimed the event with the given id. It
// returns how many times each event was claimed.
func claimsUntil(t testing.TB, s store.Store, id string, webhookIDs ...string) map[string]int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	of := make(map[string]int)
	dispatch(ctx, t, s, 10, func(tasks []storetest.Task) {
		for _, task := range tasks {
			of[task.Event.ID]++
		}
		if of[id] > 0 {
			cancel()
		}
	}, webhookIDs...)
	if of[id] == 0 {
		t.Fatalf("%s was not claimed within 30s", id)
	}
	return of
}

// A backlog that cannot be read within statement_timeout is loaded in smaller pages, and deliveries
// of other accounts continue meanwhile.
func TestLoading_BacklogSlowerThanStatementTimeout_LoadsBesideOthers(t *testing.T) {
	t.Parallel()
	const timeout, rows, each = 600 * time.Millisecond, 600, 2 * time.Millisecond
	p := slowRows(t, timeout)
	s := storeOn(t, p)
	accounts, _ := accountsIn(t, s, 2)
	pile(t, p, accounts[0], 1, rows, each)
	publishTo(t, s, accounts[1], "before")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = storeOn(t, p)
	counter := s.Count()
	claimsUntil(t, counter, "before", "wh_"+accounts[1])
	if s.Loading() == 0 {
		t.Fatal("all was loaded before the other account's event was claimed: the test shows nothing")
	}
	publishTo(t, s, accounts[1], "meanwhile")
	claimsUntil(t, counter, "meanwhile", "wh_"+accounts[1])
	eventually(t, "the backlog is loaded", func() bool { return s.Loading() == 0 })
	if n, _ := counter.Reported("wh_" + accounts[0]); n != rows {
		t.Errorf("%d deliveries were reported, want %d", n, rows)
	}
}

// An unreadable shard does not stop deliveries in other shards. The problem is logged a single
// time, and the shard is loaded as soon as it is readable.
func TestLoading_ShardThatCannotBeRead_StopsOnlyItself(t *testing.T) {
	t.Parallel()
	p := slowRows(t, 200*time.Millisecond)
	s := storeOn(t, p)
	accounts, beside := accountsIn(t, s, 3)
	for _, stuck := range accounts[:2] {
		pile(t, p, stuck, 1, 3, time.Minute)
	}
	publishTo(t, s, accounts[2], "before")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	logged := &logLines{}
	s = storeOn(t, p, logged.option())
	counter := s.Count()
	claimsUntil(t, counter, "before")
	eventually(t, "it is logged", func() bool { return len(logged.lines()) > 0 && s.Failing() == 2 })
	publishTo(t, s, accounts[2], "meanwhile")
	claimsUntil(t, counter, "meanwhile")
	publishTo(t, s, beside, "of the same shard")
	claimsUntil(t, counter, "of the same shard")
	if lines := logged.lines(); len(lines) != 1 || !strings.Contains(lines[0], "statement_timeout") || !strings.Contains(lines[0], "shard=") {
		t.Errorf("logged %q, want one line that names a shard and how to mend it", lines)
	}
	execOn(t, p, `delete from storageapi.waits`)
	eventually(t, "it is loaded", func() bool { return s.Loading() == 0 })
	for _, account := range accounts[:2] {
		if n, _ := counter.Reported("wh_" + account); n != 3 {
			t.Errorf("%d deliveries of %s were reported, want 3", n, account)
		}
	}
	if lines := logged.lines(); len(lines) != 2 {
		t.Errorf("logged %q, want that it is over as the second line", lines)
	}
}

// An event published while its shard is loading is reported twice: by the change feed and by a
// page. It must have only one attempt at a time, and none after it is settled.
func TestLoading_PublishedMeanwhile_IsClaimedOnce(t *testing.T) {
	t.Parallel()
	p := slowRows(t, 600*time.Millisecond)
	s := storeOn(t, p)
	accounts, _ := accountsIn(t, s, 1)
	account := accounts[0]
	pile(t, p, account, laterEvent, 600, 4*time.Millisecond)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = storeOn(t, p)
	counter := s.Count()
	of := make(map[string]storetest.Task)
	claimed := func() (n int) {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		tasks, err := storetest.WorkerOf(counter).Await(ctx, 10)
		if err != nil && ctx.Err() == nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			if _, again := of[task.Event.ID]; again {
				t.Errorf("%s was claimed again as attempt %d", task.Event.ID, task.Attempt)
			}
			of[task.Event.ID] = task
		}
		return len(of)
	}
	claimed()
	ids := []string{"delivered", "dead", "retried", "under way", "waits"}
	for _, id := range ids[:4] {
		publishTo(t, s, account, id)
	}
	eventually(t, "the first four are claimed", func() bool { return claimed() == 4 })
	settleAs(t, counter, of["delivered"], driver.Deliver)
	settleAs(t, counter, of["dead"], driver.GiveUp)
	if stale, err := storetest.WorkerOf(counter).Settle(t.Context(), []storetest.Settlement{{
		Task: of["retried"], Effect: driver.Retry, RetryAfter: time.Hour, Attempt: driver.Attempt{Number: 1, StartedAt: time.Now(), Status: 500},
	}}); err != nil || len(stale) > 0 {
		t.Fatal(stale, err)
	}
	publishTo(t, s, account, ids[4])
	if s.Loading() == 0 {
		t.Fatal("all was loaded before the events were published: the test shows nothing")
	}
	eventually(t, "the backlog is loaded", func() bool { return s.Loading() == 0 })
	if n, reports := counter.Reported("wh_" + account); n != 600+5 || reports <= n {
		t.Errorf("%d deliveries were reported %d times, want %d, some of them twice", n, reports, 600+5)
	}
	eventually(t, "the last one is claimed", func() bool { return claimed() == len(ids) })
	for range 5 {
		claimed()
	}
}
