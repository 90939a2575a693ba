package postgres_test

import (
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

// Caps are for all nodes together, and a receiver that is down for one is left alone
// by the others.
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
	probe := webhooks.Claim{Cap: each(1), Webhooks: []string{"wh"}}
	first := claimed(t, nodes[0], probe)
	if len(first) != 1 {
		t.Fatalf("the first node claimed %d, want 1", len(first))
	}
	none := func(when string) {
		t.Helper()
		for i, claim := range []webhooks.Claim{probe, {Cap: each(1)}, {Cap: each(10), PerAccount: 1}} {
			if n := len(claimed(t, nodes[1+i%2], claim)); n != 0 {
				t.Errorf("another node claimed %d %s, want none", n, when)
			}
		}
	}
	none("while the first has a probe under way")

	settleAs(t, nodes[0], first[0], webhooks.Retry, time.Hour)
	none("while the webhook rests")
	if n := len(claimed(t, nodes[0], probe)); n != 0 {
		t.Errorf("the first node claimed %d while the webhook rests, want none", n)
	}
	if _, err := nodes[1].UpdateWebhook(t.Context(), "acct", "wh", func(*webhooks.Webhook, *notices.Notice) error { return nil }); err != nil {
		t.Fatal(err)
	}
	second := claimed(t, nodes[1], probe)
	if len(second) != 1 {
		t.Fatalf("claimed %d after the webhook was changed, want 1", len(second))
	}
	const rest = 30 * time.Millisecond
	begun := time.Now()
	settleAs(t, nodes[1], second[0], webhooks.Retry, rest)
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if third := claimed(t, nodes[2], probe); len(third) == 1 {
			if took := time.Since(begun); took < rest {
				t.Errorf("another node claimed after %v while the webhook rests again for %v", took, rest)
			}
			settleAs(t, nodes[2], third[0], webhooks.Deliver, 0)
			break
		}
		if time.Now().After(end) {
			t.Fatal("nothing is claimed after the rest")
		}
	}
	if n := len(claimed(t, nodes[0], webhooks.Claim{Cap: each(5)})); n != 5 {
		t.Errorf("claimed %d once the webhook is up, want 5", n)
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
	s.RenewNever() // which looks through a table
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
			select sum(n_tup_del) filter (where relname = 'queue'), max(seq_tup_read), (array_agg(relname order by seq_tup_read desc))[1]
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

// Nodes that settle failures of the same webhooks at the same time do not lock each
// other out, in whatever order they have them: PostgreSQL would take a second to see
// that, each time.
func TestSettlingInAnyOrder(t *testing.T) {
	const hooks, rounds = 20, 15
	option := inSchema(t)
	nodes := []*postgres.Store{open(t, option), open(t, option), open(t, option)}
	endpoints(t, nodes[0], hooks)
	service, err := webhooks.New(nodes[0], webhooks.Config{})
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
		for i := range hooks * len(nodes) {
			if err := service.Publish(t.Context(), lowBalance(fmt.Sprintf("acct_wh_%06d", i%hooks), "")); err != nil {
				t.Fatal(err)
			}
		}
		tasks := claimed(t, nodes[0], webhooks.Claim{Cap: each(10)})
		var group sync.WaitGroup
		for i, s := range nodes {
			var mine []webhooks.Settlement
			for j, task := range tasks {
				if j%len(nodes) == i {
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

// What a webhook that rests is owed is put aside, so that claims need not pass it by,
// and is claimed when it rests no more: at once by the node that knows, and soon by the
// others.
func TestPutAside(t *testing.T) {
	const owed = 700 // more than a claim puts aside, or takes back
	name, option := migratedSchema(t)
	one, other := open(t, option), open(t, option)
	endpoints(t, one, 1)
	fill(t, pool(t), name, owed)
	ready := func() (n int) {
		if err := pool(t).QueryRow(t.Context(), `select count(*) from `+quoted(name)+`.queue where kind & 2 = 0`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	all := webhooks.Claim{Cap: each(100)}
	awaken := func(s *postgres.Store) {
		if _, err := s.UpdateWebhook(t.Context(), "acct_wh_000000", "wh_000000", func(*webhooks.Webhook, *notices.Notice) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	down := claimed(t, one, webhooks.Claim{Cap: each(2)})
	settleAs(t, one, down[0], webhooks.Retry, time.Hour)
	rest := func() {
		t.Helper()
		for range 5 {
			for _, s := range []*postgres.Store{one, other} {
				if n := len(claimed(t, s, all)); n != 0 {
					t.Fatalf("claimed %d of a webhook that rests", n)
				}
			}
		}
	}
	rest()
	if n := ready(); n != 1 { // which is leased
		t.Errorf("%d deliveries are where claims look, want 1", n)
	}
	settleAs(t, one, down[1], webhooks.Deliver, 0)
	tasks := claimed(t, one, all)
	if len(tasks) != 100 {
		t.Errorf("the node that delivered claimed %d, want 100", len(tasks))
	}
	settleAs(t, one, tasks[0], webhooks.Retry, time.Hour)
	rest()
	seen := map[string]bool{down[1].Event.ID: true}
	deliver := func(tasks []webhooks.Task) {
		for _, task := range tasks {
			if seen[task.Event.ID] {
				t.Errorf("%s was claimed again", task.Event.ID)
			}
			seen[task.Event.ID] = true
			settleAs(t, one, task, webhooks.Deliver, 0)
		}
	}
	awaken(one)
	awaken(one)
	if tasks := claimed(t, one, webhooks.Claim{Cap: each(101)}); len(tasks) != 2 {
		t.Errorf("the node that changed the webhook claimed %d, want the 2 that there is room for", len(tasks))
	} else {
		deliver(tasks)
	}
	deliver(tasks[1:])
	for end := time.Now().Add(20 * time.Second); len(seen) < owed && time.Now().Before(end); {
		if tasks = claimed(t, other, all); len(tasks) == 0 {
			time.Sleep(5 * time.Millisecond)
		}
		deliver(tasks)
	}
	if len(seen) != owed {
		t.Errorf("delivered %d, want %d", len(seen), owed)
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
