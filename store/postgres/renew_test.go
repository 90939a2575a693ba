package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/webhooks"
)

// renewing returns a store that renews its tables with every claim.
func renewing(t testing.TB, options ...postgres.Option) *postgres.Store {
	s := open(t, options...)
	s.RenewAlways()
	return s
}

// hold begins a transaction that sees everything as it is now, so that no row which is
// there now or comes later can be vacuumed.
func hold(t testing.TB, begin func(context.Context, pgx.TxOptions) (pgx.Tx, error)) pgx.Tx {
	t.Helper()
	tx, err := begin(context.Background(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err == nil {
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		_, err = tx.Exec(context.Background(), `select count(*) from pg_class`)
	}
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

// renewed returns which generation the queue is in, which file the leases are in, and how
// many bytes these have.
func renewed(t testing.TB, schema string) (of map[string]int64, bytes int64) {
	t.Helper()
	var generation, file int64
	leases := quoted(schema) + ".leases"
	if err := pool(t).QueryRow(t.Context(), `select event, pg_relation_filenode($1::regclass)::bigint, pg_relation_size($1::regclass)
		from `+quoted(schema)+`.marks where name = 'generation'`, leases).Scan(&generation, &file, &bytes); err != nil {
		t.Fatal(err)
	}
	return map[string]int64{"queue": generation, "leases": file}, bytes
}

// passed returns how many entries of the index of what is ready were read, as far as the
// server has counted them.
func passed(t testing.TB, schema string) (n int) {
	t.Helper()
	if err := pool(t).QueryRow(t.Context(), `select idx_tup_read from pg_stat_user_indexes where schemaname = $1 and indexrelname = 'queue_ready'`, schema).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// work claims and settles until so many deliveries are done.
func work(t *testing.T, s *postgres.Store, n int) {
	t.Helper()
	end := time.Now().Add(30 * time.Second)
	for done := 0; done < n; {
		if time.Now().After(end) {
			t.Fatalf("%d of %d are done", done, n)
		}
		tasks, _, err := s.ClaimDeliveries(t.Context(), webhooks.Claim{Limit: 100, Cap: each(10), Lease: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			settleAs(t, s, task, webhooks.Deliver, 0)
		}
		done += len(tasks)
	}
}

// With a transaction open that sees all that was ever owed, the leases do not grow by what
// is settled, and claims do not pass by it.
func TestRenewal(t *testing.T) {
	const rounds, each = 8, 300
	measure := func(t *testing.T, renews bool) (bytes int64, read int) {
		schema, option := migratedSchema(t)
		p, err := pgxpool.NewWithConfig(t.Context(), pool(t).Config())
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		s, err := postgres.New(t.Context(), p, option)
		if err != nil {
			t.Fatal(err)
		}
		s.RenewNever()
		if renews {
			s.RenewAlways()
		}
		endpoints(t, s, 20)
		hold(t, pool(t).BeginTx)
		for range rounds {
			fill(t, pool(t), schema, each)
			work(t, s, each)
		}
		p.Close() // then the server counts what its connections did
		for before, end := -1, time.Now().Add(10*time.Second); (read == 0 || read != before) && time.Now().Before(end); time.Sleep(300 * time.Millisecond) {
			before, read = read, passed(t, schema)
		}
		_, bytes = renewed(t, schema)
		return bytes, read
	}
	const wantBytes, wantRead = 100 << 10, 20 * rounds * each
	if bytes, read := measure(t, false); bytes < wantBytes || read < wantRead {
		t.Errorf("the leases have %d bytes, and %d entries were passed, where nothing is renewed: the test shows nothing", bytes, read)
	}
	if bytes, read := measure(t, true); bytes >= wantBytes || read >= wantRead {
		t.Errorf("the leases have %d bytes, and %d entries were passed, want less than %d and %d", bytes, read, wantBytes, wantRead)
	}
}

// What nodes of before there were generations make ready is claimed, and moved: they go on
// while others renew the queue.
func TestRenewalBesideOlderNodes(t *testing.T) {
	schema, option := migratedSchema(t)
	s := open(t, option)
	if err := s.CreateWebhook(t.Context(), newWebhook("acct", "wh"), webhooks.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.RenewAlways()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		claimed(t, s, webhooks.Claim{Cap: each(1)})
		if now, _ := renewed(t, schema); now["queue"] > 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the queue was not renewed")
		}
	}
	s.RenewNever()
	fill(t, pool(t), schema, 3)
	if _, err := pool(t).Exec(t.Context(), `update `+quoted(schema)+`.queue set kind = kind & 3`); err != nil { // as they write it
		t.Fatal(err)
	}
	if n := len(claimed(t, s, webhooks.Claim{Cap: each(1)})); n != 1 {
		t.Errorf("claimed %d of what an older node has made ready, want 1", n)
	}
	s.RenewAlways()
	for range 2 { // the second renews
		claimed(t, s, webhooks.Claim{Cap: each(1)})
	}
	s.RenewNever()
	if n := len(claimed(t, s, webhooks.Claim{Cap: each(3)})); n != 2 {
		t.Errorf("claimed %d more once the queue was renewed, want 2", n)
	}
}

// A table of which most is rows is not renewed, however long those are.
func TestRenewalOfRows(t *testing.T) {
	schema, option := migratedSchema(t)
	s := open(t, option)
	account := strings.Repeat("a", 128)
	if err := s.CreateWebhook(t.Context(), newWebhook(account, "wh"), webhooks.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	fill(t, pool(t), schema, 100)
	if n := len(claimed(t, s, webhooks.Claim{Cap: each(100)})); n != 100 {
		t.Fatalf("claimed %d, want 100", n)
	}
	before, _ := renewed(t, schema)
	s.RenewAlways()
	for range 2 { // the second renews
		claimed(t, s, webhooks.Claim{Cap: each(100)})
	}
	if after, _ := renewed(t, schema); after["leases"] != before["leases"] {
		t.Error("the leases were renewed, and all are current")
	}
}

// Nothing is missed by those who use a table while it is renewed, whatever they do with
// it.
func TestRenewalBesideOthers(t *testing.T) {
	const hooks, publishers, events = 10, 4, 40
	schema, option := migratedSchema(t)
	nodes := []*postgres.Store{renewing(t, option), renewing(t, option), open(t, option)}
	endpoints(t, nodes[0], hooks)
	service, err := webhooks.New(nodes[2], webhooks.Config{})
	if err != nil {
		t.Fatal(err)
	}
	event := func(publisher, i int) webhooks.Event {
		return lowBalance(fmt.Sprintf("acct_wh_%06d", i%hooks), fmt.Sprintf("evt_%d_%d", publisher, i))
	}
	before, _ := renewed(t, schema)
	var publishing, working sync.WaitGroup
	for p := range publishers {
		publishing.Go(func() {
			for i := range events {
				publish := func(tx pgx.Tx) error { return nodes[2].PublishTx(t.Context(), tx, service, event(p, i)) }
				var err error
				switch p {
				case 0:
					err = pgx.BeginFunc(t.Context(), pool(t), publish)
				case 1: // it sees what was before, also after the table was renewed
					tx := hold(t, pool(t).BeginTx)
					time.Sleep(time.Millisecond)
					if err = publish(tx); err == nil {
						err = tx.Commit(t.Context())
					}
				default:
					err = service.Publish(t.Context(), event(p, i))
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	var done atomic.Int64
	var mu sync.Mutex
	delivered := make(map[string]int)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	for _, s := range nodes {
		working.Go(func() {
			for done.Load() < publishers*events && ctx.Err() == nil {
				tasks, _, err := s.ClaimDeliveries(ctx, webhooks.Claim{Limit: 20, Cap: each(5), Lease: time.Minute})
				if err != nil {
					t.Error(err)
					return
				}
				var settlements []webhooks.Settlement
				for _, task := range tasks {
					one := webhooks.Settlement{Task: task, Outcome: webhooks.Deliver, Attempt: webhooks.Attempt{Number: task.Attempt, StartedAt: time.Now()}}
					if task.Attempt == 1 && len(task.Event.ID)%2 == 0 {
						one.Outcome, one.Attempt.Class = webhooks.Retry, webhooks.ClassConnect
					} else {
						mu.Lock()
						delivered[task.Event.ID]++
						mu.Unlock()
						done.Add(1)
					}
					settlements = append(settlements, one)
				}
				if stale, err := s.SettleDeliveries(ctx, settlements); err != nil || len(stale) > 0 {
					t.Errorf("SettleDeliveries = %v, %v", stale, err)
				}
			}
		})
	}
	publishing.Wait()
	working.Wait()
	if len(delivered) != publishers*events {
		t.Errorf("%d of %d were delivered", len(delivered), publishers*events)
	}
	for id, n := range delivered {
		if n != 1 {
			t.Errorf("%s was delivered %d times", id, n)
		}
	}
	after, _ := renewed(t, schema)
	for table, file := range before {
		if after[table] == file {
			t.Errorf("%s was not renewed", table)
		}
	}
	if backlog, err := nodes[0].Backlog(t.Context(), ""); err != nil || backlog.Pending != 0 {
		t.Errorf("Backlog = %+v, %v; want nothing", backlog, err)
	}
}

// A transaction of the host's that has published keeps the queue from being renewed
// until it ends, and claims go on.
func TestRenewalBesideAPublisher(t *testing.T) {
	schema, option := migratedSchema(t)
	s := renewing(t, option)
	endpoints(t, s, 2)
	service, err := webhooks.New(s, webhooks.Config{})
	if err != nil {
		t.Fatal(err)
	}
	tx, err := pool(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if err := s.PublishTx(t.Context(), tx, service, lowBalance("acct_wh_000000", "")); err != nil {
		t.Fatal(err)
	}
	before, _ := renewed(t, schema)
	for range 3 { // the first has nothing to renew
		fill(t, pool(t), schema, 10)
		work(t, s, 10)
	}
	if after, _ := renewed(t, schema); after["queue"] != before["queue"] {
		t.Error("the queue was renewed with what was published in a transaction that is open")
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	work(t, s, 1)
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		claimed(t, s, webhooks.Claim{Cap: each(1)})
		if after, _ := renewed(t, schema); after["queue"] != before["queue"] {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the queue is not renewed once the transaction has ended")
		}
	}
}

// While the only synchronous standby is down, what renews a table does not wait for it
// with the table locked: claims do not wait for it either.
func TestRenewalWithoutStandby(t *testing.T) {
	s, _, standby := onPrimary(t)
	if _, err := s.Enqueue(t.Context(), webhooks.EncodedEvent{ID: "event", Account: "acct", Type: webhooks.TypeBalanceLow}); err != nil {
		t.Fatal(err)
	}
	standby.Kill()
	s.RenewAlways()
	for _, want := range []int{1, 0} { // the second renews
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // it would wait for ever
		defer cancel()
		tasks, _, err := s.ClaimDeliveries(ctx, webhooks.Claim{Limit: 1, Lease: time.Minute})
		if err != nil || len(tasks) != want {
			t.Fatalf("ClaimDeliveries = %d tasks, %v; want %d", len(tasks), err, want)
		}
	}
}
