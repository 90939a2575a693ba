package postgres_test

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/storetest"
)

// A dump made at any time has all deliveries that are pending at that time. A database restored
// from it delivers them, and knows the events published before the dump, even if parts of event_ids
// began during the dump.
func TestDump(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	const backlog, dumps = 20, 5
	schema, option := migratedSchema(t)
	nodes := []*postgres.Store{open(t, option), open(t, option)}
	endpoints(t, nodes[0], 10)
	fill(t, pool(t), schema, backlog)
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	var mu sync.Mutex
	var published []driver.EncodedEvent
	defer group.Wait()
	defer stop()
	for n, s := range nodes {
		group.Go(func() {
			for i := 0; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) { // limits the load: dumps of more data take longer
				tasks, err := storetest.WorkerOf(s).Claim(t.Context(), 5)
				if err != nil {
					t.Error(err)
					return
				}
				var settlements []storetest.Settlement
				for _, task := range tasks {
					settlements = append(settlements, storetest.Settlement{Task: task, Effect: driver.Deliver, Attempt: driver.Attempt{Number: task.Attempt, StartedAt: time.Now()}})
				}
				if _, err := storetest.WorkerOf(s).Settle(t.Context(), settlements); err != nil { // some settlements may be stale
					t.Error(err)
					return
				}
				for _, task := range tasks { // publish a new event for each settled one
					event := driver.EncodedEvent{
						ID: fmt.Sprintf("evt_%d_%d", n, i), Account: task.Webhook.Account, Type: alerts.TypeBalanceLow, Body: []byte("{}"),
					}
					if _, err := s.Enqueue(t.Context(), event); err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					published = append(published, event)
					mu.Unlock()
					i++
				}
			}
		})
	}
	group.Go(func() {
		for ctx.Err() == nil {
			if err := nodes[0].ChangeIDs(t.Context(), 500*time.Millisecond); err != nil {
				t.Error(err)
				return
			}
			time.Sleep(700 * time.Millisecond)
		}
	})
	pending := make(map[*pgxpool.Pool]int)                 // number of pending deliveries in each restored database
	known := make(map[*pgxpool.Pool][]driver.EncodedEvent) // events published before the dump
	for i := range dumps {
		mu.Lock()
		before := slices.Clone(published)
		mu.Unlock()
		restored := dumped(t, schema, fmt.Sprintf("restored_%d", i))
		known[restored] = before[max(0, len(before)-100):]
		var events, owed, lost int
		if _, err := restored.Exec(t.Context(), `analyze`); err != nil { // the query below joins all tables
			t.Fatal(err)
		}
		err := restored.QueryRow(t.Context(), `
			select count(*), count(q.event), count(*) filter (where q.event is null and not exists (select from `+quoted(schema)+`.attempt_log a where a.event = e.event))
			from `+quoted(schema)+`.event_log e left join `+quoted(schema)+`.pending q using (event)`).Scan(&events, &owed, &lost)
		if err != nil {
			t.Fatal(err)
		}
		if lost > 0 || owed == 0 {
			t.Errorf("of %d events %d are owed, and %d neither that nor delivered", events, owed, lost)
			continue
		}
		pending[restored] = owed
	}
	stop()
	group.Wait()
	for restored, n := range pending {
		t.Run("restored", func(t *testing.T) {
			t.Parallel() // the nodes in the dump must first expire
			s := openOn(t, restored, option)
			var events, after int
			count := `select count(*) from ` + quoted(schema) + `.event_log`
			if err := restored.QueryRow(t.Context(), count).Scan(&events); err != nil {
				t.Fatal(err)
			}
			for _, event := range known[restored] {
				if _, err := s.Enqueue(t.Context(), event); err != nil {
					t.Fatal(err)
				}
			}
			if err := restored.QueryRow(t.Context(), count).Scan(&after); err != nil || after != events {
				t.Errorf("of %d events that were published before, %d are new here, %v", len(known[restored]), after-events, err)
			}
			more, err := s.Enqueue(t.Context(), driver.EncodedEvent{ID: "new", Account: "acct_wh_000001", Type: alerts.TypeBalanceLow, Body: []byte("{}")})
			if err != nil || more != 1 {
				t.Fatalf("Enqueue of a new one = %d, %v", more, err)
			}
			deliverAll(t, s, n+more)
		})
	}
}

// deliverAll claims and settles until n deliveries are settled.
func deliverAll(t *testing.T, s *postgres.Store, n int) {
	t.Helper()
	end := time.Now().Add(30 * time.Second)
	for done := 0; done < n; {
		if time.Now().After(end) {
			t.Fatalf("%d of %d are done", done, n)
		}
		tasks, err := storetest.WorkerOf(s).Claim(t.Context(), 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			settleAs(t, s, task, driver.Deliver)
		}
		if done += len(tasks); len(tasks) == 0 {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// dumped dumps a schema with pg_dump, restores it into a new database with the given name, and
// returns connections to it. The database exists until the test ends.
func dumped(t *testing.T, schema, name string) *pgxpool.Pool {
	t.Helper()
	config := pool(t).Config()
	run := func(tool string, args ...string) {
		t.Helper()
		path, err := exec.LookPath(tool)
		if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + tool); err != nil && len(found) > 0 {
			path, err = found[len(found)-1], nil
		}
		if err != nil {
			skip(t, err)
		}
		of := config.ConnConfig
		args = append([]string{"-h", of.Host, "-p", strconv.Itoa(int(of.Port)), "-U", of.User}, args...)
		cmd := exec.Command(path, args...)
		cmd.Env = append(cmd.Environ(), "PGPASSWORD="+of.Password)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", tool, err, out)
		}
	}
	drop := func() { _, _ = pool(t).Exec(context.Background(), `drop database if exists `+name+` with (force)`) }
	drop()
	file := filepath.Join(t.TempDir(), "dump")
	run("pg_dump", "-F", "custom", "-f", file, "-n", quoted(schema), "-d", config.ConnConfig.Database)
	if _, err := pool(t).Exec(t.Context(), `create database `+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(drop)
	run("pg_restore", "-d", name, file)
	config.ConnConfig.Database = name
	p, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}
