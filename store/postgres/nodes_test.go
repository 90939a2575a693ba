package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/webhooks"
)

// claimed returns how many deliveries a node claims.
func claimed(t *testing.T, s *postgres.Store, claim webhooks.Claim) []webhooks.Task {
	t.Helper()
	claim.Limit, claim.Lease = 100, time.Minute
	tasks, _, err := s.ClaimDeliveries(t.Context(), claim)
	if err != nil {
		t.Fatal(err)
	}
	return tasks
}

// dispatch claims as the dispatcher does, until ctx ends or a claim fails: at once if the claim before got
// something, or else when it is woken or has waited. It tells what each claim got, and is to wait.
func dispatch(ctx context.Context, t testing.TB, s *postgres.Store, claim webhooks.Claim, tell func(tasks []webhooks.Task, wait time.Duration)) {
	var group sync.WaitGroup
	defer group.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	woken := make(chan struct{}, 1)
	group.Go(func() {
		s.Capabilities().Wake(ctx, func() {
			select {
			case woken <- struct{}{}:
			default:
			}
		})
	})
	for ctx.Err() == nil {
		tasks, wait, err := s.ClaimDeliveries(ctx, claim)
		if err != nil {
			if ctx.Err() == nil {
				t.Error(err)
			}
			return
		}
		if tell(tasks, wait); len(tasks) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
		case <-woken:
		case <-time.After(wait):
		}
	}
}

// each is a cap for all webhooks.
func each(most int) func(string, bool) int { return func(string, bool) int { return most } }

func settleAs(t *testing.T, s *postgres.Store, task webhooks.Task, outcome webhooks.Outcome, rest time.Duration) {
	t.Helper()
	stale, err := s.SettleDeliveries(t.Context(), []webhooks.Settlement{{
		Task: task, Outcome: outcome, Rest: rest,
		Attempt: webhooks.Attempt{Number: task.Attempt, StartedAt: time.Now(), Class: webhooks.ClassConnect},
	}})
	if err != nil || len(stale) > 0 {
		t.Fatal(stale, err)
	}
}

// claimedByAny returns what the nodes claim, one after the other.
func claimedByAny(t *testing.T, nodes []*postgres.Store, claim webhooks.Claim) (by *postgres.Store, tasks []webhooks.Task) {
	t.Helper()
	for _, s := range nodes {
		if list := claimed(t, s, claim); len(list) > 0 {
			by, tasks = s, append(tasks, list...)
		}
	}
	return by, tasks
}

// Caps are for all nodes together, and a receiver that is down for one is left alone
// by the others, whichever of them owns its shard by then.
func TestNodesShareCaps(t *testing.T) {
	option := inSchema(t)
	nodes := []*postgres.Store{open(t, option), open(t, option), open(t, option)}
	if err := nodes[0].CreateWebhook(t.Context(), newWebhook("acct", "wh"), webhooks.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	service, err := webhooks.New(nodes[0], webhooks.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if err := service.Publish(t.Context(), lowBalance("acct", "")); err != nil {
			t.Fatal(err)
		}
	}
	one := func(what string, claim webhooks.Claim) (by *postgres.Store, task webhooks.Task) {
		t.Helper()
		var tasks []webhooks.Task
		eventually(t, what, func() bool {
			by, tasks = claimedByAny(t, nodes, claim)
			return len(tasks) > 0
		})
		if len(tasks) != 1 {
			t.Fatalf("%s: claimed %d, want 1", what, len(tasks))
		}
		return by, tasks[0]
	}
	probe := webhooks.Claim{Cap: each(1), Webhooks: []string{"wh"}}
	none := func(when string) {
		t.Helper()
		for range 20 {
			for _, claim := range []webhooks.Claim{probe, {Cap: each(1)}, {Cap: each(10), PerAccount: 1}} {
				if _, tasks := claimedByAny(t, nodes, claim); len(tasks) != 0 {
					t.Fatalf("%d claimed %s, want none", len(tasks), when)
				}
			}
		}
	}
	owner, first := one("the first", probe)
	none("while an attempt is under way")

	settleAs(t, owner, first, webhooks.Retry, time.Hour)
	none("while the webhook rests")
	if _, err := nodes[1].UpdateWebhook(t.Context(), "acct", "wh", func(*webhooks.Webhook, *notices.Notice) error { return nil }); err != nil {
		t.Fatal(err)
	}
	owner, second := one("after the webhook was changed", probe)
	const rest = 30 * time.Millisecond
	begun := time.Now()
	settleAs(t, owner, second, webhooks.Retry, rest)
	owner, third := one("after the rest", probe)
	if took := time.Since(begun); took < rest {
		t.Errorf("claimed after %v while the webhook rests again for %v", took, rest)
	}
	settleAs(t, owner, third, webhooks.Deliver, 0)
	n := 0
	eventually(t, "as many are claimed as the cap allows", func() bool {
		_, tasks := claimedByAny(t, nodes, webhooks.Claim{Cap: each(5)})
		n += len(tasks)
		return n >= 5
	})
	if _, tasks := claimedByAny(t, nodes, webhooks.Claim{Cap: each(5)}); n+len(tasks) != 5 {
		t.Errorf("claimed %d once the webhook is up, want 5", n+len(tasks))
	}
}

// A plan made while the queue is empty is not one that reads all of it once it is
// full.
func TestPlansOfAnEmptyQueue(t *testing.T) {
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
	service, err := webhooks.New(s, webhooks.Config{})
	if err != nil {
		t.Fatal(err)
	}
	settled := 0
	round := func() {
		if err := service.Publish(t.Context(), lowBalance("acct_wh_000001", "")); err != nil {
			t.Fatal(err)
		}
		for _, task := range claimed(t, s, webhooks.Claim{Cap: each(2), PerAccount: 10}) {
			settleAs(t, s, task, webhooks.Outcome(2+settled%2), 0)
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
	p.Close() // then the server counts what its connections did
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
		if counted >= settled {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the server has counted %d of %d that were settled", counted, settled)
		}
	}
}

// Who settles failures of the same webhooks at the same time locks nobody out, in whatever order they have them: PostgreSQL would take a second to see
// that, each time.
func TestSettlingInAnyOrder(t *testing.T) {
	const hooks, settlers, rounds = 20, 3, 15
	option := inSchema(t)
	s := open(t, option)
	endpoints(t, s, hooks)
	service, err := webhooks.New(s, webhooks.Config{})
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
		tasks := claimed(t, s, webhooks.Claim{Cap: each(10)})
		var group sync.WaitGroup
		for i := range settlers {
			var mine []webhooks.Settlement
			for j, task := range tasks {
				if j%settlers == i {
					mine = append(mine, webhooks.Settlement{
						Task: task, Outcome: webhooks.GiveUp, Rest: time.Microsecond,
						Attempt: webhooks.Attempt{Number: task.Attempt, StartedAt: time.Now(), Class: webhooks.ClassConnect},
					})
				}
			}
			rand.Shuffle(len(mine), func(a, b int) { mine[a], mine[b] = mine[b], mine[a] })
			group.Go(func() {
				if stale, err := s.SettleDeliveries(t.Context(), mine); err != nil || len(stale) > 0 {
					t.Errorf("SettleDeliveries = %v, %v", stale, err)
				}
			})
		}
		group.Wait()
	}
	if n := deadlocks() - before; n > 0 {
		t.Errorf("%d deadlocks", n)
	}
}

// However much one webhook is owed, the others have their turn in the same claim, and
// that reads no more of the backlog than it takes.
func TestBacklogOfOne(t *testing.T) {
	name, option := migratedSchema(t)
	s := open(t, option)
	endpoints(t, s, 1)
	fill(t, pool(t), name, 30_000)
	const others = 90
	service, err := webhooks.New(s, webhooks.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range others {
		account := fmt.Sprint("acct_", i)
		if err := s.CreateWebhook(t.Context(), newWebhook(account, account), webhooks.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := service.Publish(t.Context(), lowBalance(account, "")); err != nil {
			t.Fatal(err)
		}
	}
	of := map[string]int{}
	begun := time.Now()
	for _, task := range claimed(t, s, webhooks.Claim{Cap: each(50)}) {
		of[task.Webhook.ID]++
	}
	took := time.Since(begun)
	if busy := of["wh_000000"]; len(of) != 1+others || busy != 10 {
		t.Errorf("claimed of %d webhooks, %d of the one with the backlog; want all %d, and the 10 that are left for it", len(of), busy, 1+others)
	}
	if took > 2*time.Second {
		t.Errorf("the claim took %v", took)
	}
}
