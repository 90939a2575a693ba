package postgres_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/postgres/internal/cluster"
	"github.com/storageapi/storageapi/webhooks"
)

// A tally has what workers were told is stored: events and their accounts.
type tally struct {
	mu     sync.Mutex
	events map[string]string
}

func newTally() *tally { return &tally{events: make(map[string]string)} }

func (l *tally) tell(account, event string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events[event] = account
}

func (l *tally) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.events)
}

// more waits until so many more were told.
func (l *tally) more(t *testing.T, n int) {
	t.Helper()
	before := l.count()
	for end := time.Now().Add(time.Minute); l.count() < before+n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d events more in a minute, want %d", l.count()-before, n)
		}
	}
}

// want delivers what is pending, and reports what was told and is not delivered.
func (l *tally) want(t *testing.T, s *postgres.Store) {
	t.Helper()
	lost := 0
	for event, account := range l.events {
		for end := time.Now().Add(30 * time.Second); ; {
			list, err := s.EventDeliveries(t.Context(), account, event)
			if err == nil && len(list) == 1 && list[0].State == webhooks.Delivered {
				break
			}
			if time.Now().After(end) {
				lost++
				t.Errorf("event %s has %d deliveries, %v", event, len(list), err)
				break
			}
			for _, task := range claimed(t, s, webhooks.Claim{Cap: each(100)}) {
				settleAs(t, s, task, webhooks.Deliver, 0)
			}
		}
		if lost > 3 {
			t.Fatal("and so on")
		}
	}
	t.Logf("%d events were acknowledged", len(l.events))
}

// Nodes of this version and of the next one are at work on one database while the first
// of the next one migrates it. A node of this version starts again after that.
func TestUpgradeAtWork(t *testing.T) {
	p, option := pool(t), postgres.InSchema(newSchema(t))
	next := further(`alter table storageapi.keys add column more text`, len(postgres.SQL()))
	if err := postgres.Migrate(t.Context(), p, option); err != nil {
		t.Fatal(err)
	}
	endpoints(t, open(t, option), worked)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	told := newTally()
	start := func(name string, options ...postgres.Option) {
		t.Helper()
		if err := postgres.Migrate(t.Context(), p, options...); err != nil {
			t.Fatal(err)
		}
		s := open(t, options...)
		group.Go(func() {
			if err := errors.Join(workAs(ctx, s, name, told.tell), s.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	start("before", option)
	told.more(t, 10)
	start("now", option, next)
	told.more(t, 20)
	start("rolled_back", option)
	told.more(t, 20)
	cancel()
	group.Wait()
	told.want(t, open(t, option))
}

// A node that does not know what is stored of a key keeps it, in all rows of the key.
func TestOlderNodesKeepWhatTheyDoNotKnow(t *testing.T) {
	name, option := migratedSchema(t)
	s := open(t, option, postgres.KnowingOnly(postgres.FirstOldest))
	if err := s.CreateKey(t.Context(), keyNo(1), apikeys.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	in(t, name, `update keys set created_by = 'ada', disabled_at = now(), disabled_by = 'bob', disabled_reason = 'leaked',
		labels = '{"team": "a"}', networks = '{10.0.0.0/8}', rate_limit = '{"perSecond": 1}'`)
	if _, err := s.UpdateKey(t.Context(), "acct", "key_1", func(k *apikeys.Key, _ *notices.Notice) error {
		k.Hash, k.Previous, k.PreviousExpiresAt = hashNo(2), k.Hash, time.Now().Add(time.Hour)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var rows, complete int
	err := pool(t).QueryRow(t.Context(), `select count(*), count(*) filter (where created_by = 'ada' and disabled_at is not null and disabled_by = 'bob'
		and disabled_reason = 'leaked' and labels ->> 'team' = 'a' and networks = '{10.0.0.0/8}' and rate_limit is not null) from `+quoted(name)+`.keys`).Scan(&rows, &complete)
	if err != nil || rows != 2 || complete != 2 {
		t.Errorf("%d of %d rows have all, %v, want 2 of 2", complete, rows, err)
	}
}

var nodeOfBefore = flag.String("before", "", "a commit whose nodes share a database with those of this one; it has what version 9 brought")

// With -before=HEAD~1, or another commit: the same as TestUpgradeAtWork with processes of
// that commit, which knows whatever it knew.
func TestNodeOfBefore(t *testing.T) {
	if *nodeOfBefore == "" {
		t.Skip("-before names no commit")
	}
	tree, run := clonedAt(t, *nodeOfBefore)
	module, before := filepath.Join(tree, "store", "postgres"), filepath.Join(tree, "before.test")
	if known, err := filepath.Glob(filepath.Join(module, "migrations", "*.sql")); err == nil && len(known) == lastQueued {
		worker, err := os.ReadFile("worker_test.go") // its own wants to see what it has published
		if err == nil {
			err = os.WriteFile(filepath.Join(module, "worker_test.go"), worker, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	run(module, "go", "test", "-c", "-o", before, ".")

	c, err := cluster.Start("fsync=off", "full_page_writes=off")
	if err != nil {
		skip(t, err)
	}
	defer c.Stop()
	dsn := c.DSN("postgres") + " pool_max_conns=12"
	p, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	base := postgres.KnowingOnly(postgres.FirstOldest)
	if err := postgres.Migrate(t.Context(), p, base); err != nil {
		t.Fatal(err)
	}
	oldEndpoints(t, p, worked)
	told := newTally()
	var ends []func() error
	for _, binary := range []string{before, os.Args[0], before} { // the last was rolled back
		ends = append(ends, startWorker(t, binary, dsn, told.tell))
		told.more(t, 20)
	}
	for _, end := range ends {
		if err := end(); err != nil {
			t.Errorf("a worker ended with %v", err)
		}
	}
	told.want(t, openOn(t, p))
}

// oldEndpoints does what endpoints does, on the schema of version 9: the code of this version
// cannot.
func oldEndpoints(t *testing.T, p *pgxpool.Pool, n int) {
	t.Helper()
	for i := range n {
		id := fmt.Sprintf("wh_%06d", i)
		if _, err := p.Exec(t.Context(), `insert into storageapi.webhooks
				(account, id, shard, url, events, past_events, active, off_reason, balance_threshold, secret, created_at)
			values ($1, $2, $3, 'https://example.com/', '{balance.low}', '{}', true, '', 0, $4, now())`,
			"acct_"+id, id, postgres.ShardOf("acct_"+id), []byte(signing.NewSecret().Reveal())); err != nil {
			t.Fatal(err)
		}
	}
}
