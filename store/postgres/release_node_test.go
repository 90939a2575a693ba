package postgres_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/postgres/internal/cluster"
)

// A tally records the events that the store has acknowledged to workers, with their accounts.
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

// more waits until n more events are acknowledged.
func (l *tally) more(t *testing.T, n int) {
	t.Helper()
	before := l.count()
	for end := time.Now().Add(time.Minute); l.count() < before+n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d events more in a minute, want %d", l.count()-before, n)
		}
	}
}

// want delivers all pending events, and fails the test if an acknowledged event was not delivered.
func (l *tally) want(t *testing.T, s *postgres.Store) {
	t.Helper()
	lost := 0
	for event, account := range l.events {
		for end := time.Now().Add(30 * time.Second); ; {
			list, err := s.EventDeliveries(t.Context(), account, event)
			if err == nil && len(list) == 1 && list[0].State == driver.Delivered {
				break
			}
			if time.Now().After(end) {
				lost++
				t.Errorf("event %s has %d deliveries, %v", event, len(list), err)
				break
			}
			for _, task := range claimed(t, s) {
				settleAs(t, s, task, driver.Deliver)
			}
		}
		if lost > 3 {
			t.Fatal("and so on")
		}
	}
	t.Logf("%d events were acknowledged", len(l.events))
}

// Nodes of this version and of the next version work on one database while the first node of the
// next version migrates it. Afterwards a node of this version can start again.
func TestUpgrade_NodesRunning_KeepWorking(t *testing.T) {
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

var release = flag.String("release", "", "the commit of the last release, whose nodes share a database with those of this one")

// TestNodesOfTheLastRelease is like TestUpgrade_NodesRunning_KeepWorking, but the older nodes are
// processes built from the commit in -release, such as v0.1.0. The last of these processes starts
// after the migration, as in a rollback.
func TestNodesOfTheLastRelease(t *testing.T) {
	if *release == "" {
		t.Skip("-release names no commit")
	}
	tree, run := clonedAt(t, *release)
	released := filepath.Join(tree, "released.test")
	run(filepath.Join(tree, "store", "postgres"), "go", "test", "-c", "-o", released, ".")

	c, err := cluster.Start("fsync=off", "full_page_writes=off")
	if err != nil {
		skip(t, err)
	}
	defer c.Stop()
	dsn := c.DSN("postgres") + " pool_max_conns=12"
	told := newTally()
	var ends []func() error
	for _, binary := range []string{released, os.Args[0], released} {
		ends = append(ends, startWorker(t, binary, dsn, told.tell))
		told.more(t, 20)
	}
	for _, end := range ends {
		if err := end(); err != nil {
			t.Errorf("a worker ended with %v", err)
		}
	}
	p, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	told.want(t, openOn(t, p))
}

// clonedAt returns a directory with the repository at a commit, and a function that runs commands.
func clonedAt(t *testing.T, commit string) (tree string, run func(dir, name string, args ...string) string) {
	t.Helper()
	run = func(dir, name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v: %s", name, args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	tree = filepath.Join(t.TempDir(), "tree")
	commit = run(".", "git", "rev-parse", "--verify", commit+"^{commit}")
	run(".", "git", "clone", "-q", "--shared", "--no-checkout", run(".", "git", "rev-parse", "--show-toplevel"), tree)
	run(tree, "git", "checkout", "-q", commit)
	return tree, run
}
