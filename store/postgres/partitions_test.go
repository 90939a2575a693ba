package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/storetest"
)

// parted is a store whose parts (partitions) end when the test calls split.
type parted struct {
	*postgres.Store
	t      *testing.T
	schema string
	option postgres.Option
}

func newParted(t *testing.T) *parted {
	name, option := migratedSchema(t)
	s := &parted{open(t, option, postgres.PollEvery(time.Millisecond)), t, name, option}
	if err := s.CreateWebhook(t.Context(), newWebhook("acct", "a"), driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return s
}

var partedTables = []string{"event_log", "attempt_log", "failure_log", "event_bodies"}

// split ends the current part of each table, and returns a time between the events published before
// and after the call.
func (s *parted) split() (border time.Time) {
	s.t.Helper()
	step := func(tx pgx.Tx) error {
		_, err := tx.Exec(s.t.Context(), `set local lock_timeout = '300ms'; set local search_path = `+quoted(s.schema)+`; lock table `+strings.Join(partedTables, ", ")+` in access exclusive mode`)
		if err != nil {
			return err
		}
		time.Sleep(2 * time.Millisecond) // no event is being published now
		if err := tx.QueryRow(s.t.Context(), `select clock_timestamp()`).Scan(&border); err != nil {
			return err
		}
		border = border.Truncate(time.Millisecond)
		number := numberOf(border)
		for _, table := range partedTables {
			var name string
			var least, below int64
			if err := tx.QueryRow(s.t.Context(), `select name, least, below from partitions where kind = $1 and least < $2 and below > $2`, table, number).Scan(&name, &least, &below); err != nil {
				return fmt.Errorf("the part of %s: %w", table, err)
			}
			from := fmt.Sprint(least)
			if least == 0 {
				from = "minvalue"
			}
			if _, err := tx.Exec(s.t.Context(), fmt.Sprintf(`
				alter table %[1]s detach partition %[2]s;
				alter table %[1]s attach partition %[2]s for values from (%[3]s) to (%[4]d);
				create table %[1]s_%[4]d partition of %[1]s for values from (%[4]d) to (%[5]d);
				update partitions set below = %[4]d where name = '%[2]s';
				insert into partitions (kind, least, below, name) values ('%[1]s', %[4]d, %[5]d, '%[1]s_%[4]d')`, table, name, from, number, below)); err != nil {
				return err
			}
		}
		return nil
	}
	for {
		err := pgx.BeginFunc(s.t.Context(), pool(s.t), step)
		if err == nil {
			return border
		}
		if !strings.Contains(err.Error(), "lock timeout") {
			s.t.Fatal(err)
		}
	}
}

// numberOf returns the lowest number of an event published at the given time.
func numberOf(at time.Time) int64 {
	return at.Sub(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)).Microseconds() * 4096
}

func (s *parted) publish(ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		if _, err := s.Enqueue(s.t.Context(), ofAcct(id)); err != nil {
			s.t.Fatal(err)
		}
	}
}

func ofAcct(id string) driver.EncodedEvent {
	return driver.EncodedEvent{ID: id, Account: "acct", Type: alerts.TypeBalanceLow, Timestamp: time.Now(), Body: []byte(`"` + id + `"`)}
}

// purge purges everything published before the given time, until nothing is left to purge.
func (s *parted) purge(before time.Time) {
	s.t.Helper()
	for more := true; more; {
		var err error
		if more, err = s.Purge(s.t.Context(), driver.Purge{Payloads: before, Attempts: before, EventIDs: before, Limit: 100}); err != nil {
			s.t.Fatal(err)
		}
	}
}

// deliver claims the due deliveries and settles them with the outcome. It checks that they are the
// deliveries of exactly the events want, with their bodies.
func (s *parted) deliver(outcome driver.Effect, want ...string) {
	s.t.Helper()
	var got []string
	for end := time.Now().Add(10 * time.Second); len(got) < len(want) && time.Now().Before(end); {
		for _, task := range claimed(s.t, s.Store) {
			if string(task.Event.Body) != `"`+task.Event.ID+`"` || task.Err != nil {
				s.t.Errorf("the body of %s is %s, %v", task.Event.ID, task.Event.Body, task.Err)
			}
			got = append(got, task.Event.ID)
			settleAs(s.t, s.Store, task, outcome)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		s.t.Errorf("claimed %q, want %q", got, want)
	}
}

// want checks the lists of deliveries and of events, newest first.
func (s *parted) want(want ...string) {
	s.t.Helper()
	var deliveries, events []string
	page, err := s.ListDeliveries(s.t.Context(), "acct", "a", driver.DeliveryQuery{Limit: 100})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, d := range page.Deliveries {
		deliveries = append(deliveries, d.EventID)
	}
	list, err := s.ListEvents(s.t.Context(), "acct", driver.EventQuery{Limit: 100})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range list.Events {
		events = append(events, e.ID)
	}
	if !slices.Equal(deliveries, want) || !slices.Equal(events, want) {
		s.t.Errorf("listed are deliveries of %q and events %q, want %q", deliveries, events, want)
	}
}

// first returns the number of tables whose first part still exists.
func (s *parted) first() (n int) {
	s.t.Helper()
	return s.count(`select count(*) from pg_class where relnamespace = (select oid from pg_namespace where nspname = $1) and relkind = 'r'
		and relname = any(array['event_log_0', 'attempt_log_0', 'failure_log_0', 'event_bodies_0'])`, s.schema)
}

func (s *parted) count(sql string, args ...any) (n int) {
	s.t.Helper()
	if err := pool(s.t).QueryRow(s.t.Context(), strings.ReplaceAll(sql, "{}", quoted(s.schema)), args...).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// Past data is hidden at once. Later the whole part is dropped.
func TestPurge_PastPartition_IsDropped(t *testing.T) {
	s := newParted(t)
	s.publish("1", "2", "3")
	s.deliver(driver.Deliver, "1", "2", "3")
	s.publish("failed")
	s.deliver(driver.GiveUp, "failed")
	s.publish("owed")
	s.split()
	s.publish("late")
	border := s.split()
	s.publish("young")

	s.purge(border.Add(-time.Hour))
	if n := s.first(); n != 4 {
		t.Errorf("%d first parts are there, want all 4", n)
	}
	s.want("young", "late", "owed", "failed", "3", "2", "1")
	s.purge(border)
	if n := s.first(); n != 0 {
		t.Errorf("%d first parts are there, want none", n)
	}
	if n := s.count(`select count(*) from {}.partitions where kind <> 'event_ids' and least = 0`); n != 0 {
		t.Errorf("%d of them are noted", n)
	}
	s.want("young")
	s.deliver(driver.Deliver, "young")
	s.want("young")
	s.publish("1") // its earlier id is forgotten
	s.deliver(driver.Deliver, "1")
	s.want("1", "young")
}

// Past data is dropped even if no event is published after it.
func TestPurge_NothingPublished_DropsPastPartitions(t *testing.T) {
	s := newParted(t)
	s.publish("1")
	s.deliver(driver.Deliver, "1")
	s.purge(s.split())
	if n := s.first(); n != 0 {
		t.Errorf("%d first parts are there, want none", n)
	}
	s.want()
}

// A transaction that reads, such as a backup, prevents the dropping of past parts, but past data is
// hidden nevertheless. Neither Purge nor publishing waits for the transaction.
func TestPurge_BackupOpen_DoesNotWait(t *testing.T) {
	s := newParted(t)
	s.publish("1", "2")
	s.deliver(driver.Deliver, "1", "2")
	border := s.split()
	tx, err := pool(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	for _, table := range partedTables {
		if _, err := tx.Exec(t.Context(), `lock table `+quoted(s.schema)+`.`+table+`_0 in access share mode`); err != nil {
			t.Fatal(err)
		}
	}
	s.publish("young")
	begun := time.Now()
	var group sync.WaitGroup
	group.Go(func() { s.purge(border) })
	time.Sleep(20 * time.Millisecond)
	s.publish("younger")
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("publishing took %v", took)
	}
	group.Wait()
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("Purge took %v", took)
	}
	if n := s.first(); n != 4 {
		t.Errorf("%d first parts are there, want all 4", n)
	}
	s.want("younger", "young")
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.purge(border) // this purge does not retry dropping yet
	if n := s.first(); n != 4 {
		t.Errorf("%d first parts are there soon after that, want all 4", n)
	}
	other := *s
	other.Store = open(t, s.option)
	other.purge(border)
	if n := s.first(); n != 0 {
		t.Errorf("%d first parts are there, want none", n)
	}
	s.deliver(driver.Deliver, "young", "younger")
}

// runOut makes all parts end half an hour ago.
func (s *parted) runOut() {
	s.t.Helper()
	for _, table := range partedTables {
		in(s.t, s.schema, fmt.Sprintf(`alter table %[1]s detach partition %[1]s_0; alter table %[1]s attach partition %[1]s_0 for values from (minvalue) to (%[2]d);
			update partitions set below = %[2]d where kind = '%[1]s'; update marks set event = %[2]d where name = 'parts'`, table, numberOf(time.Now().Add(-30*time.Minute))))
	}
}

// numbered counts the events whose numbers belong to the last minute.
func (s *parted) numbered() int {
	s.t.Helper()
	return s.count(`select count(*) from {}.event_log where event > $1`, numberOf(time.Now().Add(-time.Minute)))
}

// While there is no part for the current time, the event clock stops. Events are still
// stored, in order, and do not become past until parts can be made again.
func TestPublish_NoPartition_EventClockStops(t *testing.T) {
	s := newParted(t)
	s.runOut()
	s.publish("1", "2", "3")
	s.deliver(driver.Deliver, "1", "2", "3")
	if n := s.count(`select count(*) from {}.event_log where event < $1`, numberOf(time.Now().Add(-34*time.Minute))); n != 3 {
		t.Errorf("%d events have numbers from five minutes before the end of the parts, want 3", n)
	}
	s.want("3", "2", "1")
	s.purge(time.Now().Add(-time.Hour)) // purge first makes parts, and then moves the marks
	s.publish("4")
	if n := s.numbered(); n != 1 {
		t.Errorf("%d events have the present for their number once there are parts, want 1", n)
	}
	s.want("4", "3", "2", "1")
}

// A node makes parts when it starts and while it publishes, even if no node purges.
func TestNew_NoPartition_MakesPartitions(t *testing.T) {
	s := newParted(t)
	s.runOut()
	s.CheckParts()
	i := 0
	eventually(t, "a node that publishes makes parts", func() bool {
		s.publish(fmt.Sprint("publishing", i))
		i++
		return s.numbered() > 0
	})
	s = newParted(t)
	s.runOut()
	s.Store = open(t, s.option)
	s.publish("starting")
	if n := s.numbered(); n != 1 {
		t.Errorf("%d events have the present for their number after a start, want 1", n)
	}
}

// Parts are made ahead, without gaps, and there are few of them.
func TestPartitionsAreMadeAhead(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for age, least := range map[time.Duration]time.Duration{
		8 * time.Minute: 2 * time.Minute, 8 * time.Hour: 6 * time.Hour, 8 * day: 2 * day, 90 * day: 20 * day, 0: 60 * day,
	} {
		s := newParted(t)
		for range 3 {
			var purge driver.Purge
			if age > 0 {
				long := time.Now().Add(-age)
				purge = driver.Purge{Payloads: long, Attempts: long, EventIDs: long}
			}
			purge.Limit = 1
			if _, err := s.Purge(t.Context(), purge); err != nil {
				t.Fatal(err)
			}
		}
		for _, table := range partedTables {
			rows, _ := pool(t).Query(t.Context(), `select least, below from `+quoted(s.schema)+`.partitions where kind = $1 order by least`, table)
			list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r struct{ least, below int64 }, err error) {
				return r, row.Scan(&r.least, &r.below)
			})
			if err != nil || len(list) == 0 || len(list) > 8 {
				t.Fatalf("%s has %d parts, %v", table, len(list), err)
			}
			for i := range list[1:] {
				if list[i].below != list[i+1].least {
					t.Errorf("a part of %s ends at %d, and the next begins at %d", table, list[i].below, list[i+1].least)
				}
			}
			last := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(list[len(list)-1].below/4096) * time.Microsecond)
			if ahead := time.Until(last); ahead < least-time.Minute {
				t.Errorf("for an age of %v the parts of %s are for %v, want %v", age, table, ahead, least)
			}
		}
	}
}

// Even if a host always has an open transaction that has published, parts can be made and dropped,
// and the transactions do not have to wait.
func TestPurge_OpenTransactions_MakesAndDropsPartitions(t *testing.T) {
	t.Parallel()
	s := newParted(t)
	s.publish("1")
	s.deliver(driver.Deliver, "1")
	border := s.split()
	s.publish("young")
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	var longest atomic.Int64
	for n := range 4 { // each transaction begins before the previous one ends
		group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				err := pgx.BeginFunc(t.Context(), pool(t), func(tx pgx.Tx) error {
					begun := time.Now()
					_, err := s.EnqueueTx(t.Context(), tx, ofAcct(fmt.Sprintf("open %d %d", n, i)))
					longest.Store(max(longest.Load(), int64(time.Since(begun))))
					time.Sleep(200 * time.Millisecond)
					return err
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
		time.Sleep(50 * time.Millisecond)
	}
	made := func() int {
		return s.count(`select count(*) from {}.partitions where kind <> 'event_ids' and below > $1`, numberOf(time.Now().Add(59*24*time.Hour)))
	}
	for round := 0; (s.first() > 0 || made() < len(partedTables)) && round < 15; round++ {
		// Use a new node each time, since a node does not retry at once.
		node := open(t, s.option)
		if _, err := node.Purge(t.Context(), driver.Purge{Payloads: border, Attempts: border, EventIDs: border, Limit: 100}); err != nil {
			t.Error(err)
		}
		if _, err := node.Purge(t.Context(), driver.Purge{Limit: 100}); err != nil { // makes parts of 30 days, 60 days ahead
			t.Error(err)
		}
	}
	stop()
	group.Wait()
	if n := s.first(); n > 0 {
		t.Errorf("%d first parts are there, want none", n)
	}
	if n := made(); n < len(partedTables) {
		t.Errorf("%d tables have parts for 60 days, want %d", n, len(partedTables))
	}
	t.Logf("the longest publication took %v", time.Duration(longest.Load()))
}

// If a transaction prevents the dropping of a part for an hour, Purge returns an error. Statements
// that wait for the part are canceled.
func TestPurge_PartitionBlockedForAnHour_Fails(t *testing.T) {
	s := newParted(t)
	border := time.Now().Add(-2 * time.Hour)
	in(t, s.schema, fmt.Sprintf(`
		alter table event_bodies detach partition event_bodies_0;
		alter table event_bodies attach partition event_bodies_0 for values from (minvalue) to (%[1]d);
		create table event_bodies_1 partition of event_bodies for values from (%[1]d) to (%[2]d);
		update partitions set below = %[1]d where name = 'event_bodies_0';
		insert into partitions (kind, least, below, name) values ('event_bodies', %[1]d, %[2]d, 'event_bodies_1')`,
		numberOf(border), numberOf(time.Now().Add(8*24*time.Hour))))
	backup, err := pool(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = backup.Rollback(context.Background()) }()
	if _, err := backup.Exec(t.Context(), `lock table `+quoted(s.schema)+`.event_bodies_0 in access share mode`); err != nil {
		t.Fatal(err)
	}
	purge := func(ago time.Duration) error {
		_, err := open(t, s.option).Purge(t.Context(), driver.Purge{Payloads: time.Now().Add(-ago), Limit: 100})
		return err
	}
	if err := purge(90 * time.Minute); err != nil {
		t.Errorf("Purge while a part is kept for half an hour = %v, want nil", err)
	}
	if err := purge(30 * time.Minute); err == nil || !strings.Contains(err.Error(), "partition event_bodies_0 of table event_bodies") {
		t.Errorf("Purge while a part is kept for 90 minutes = %v, want an error that names the part", err)
	}
	eventually(t, "nothing waits for the part", func() bool {
		return s.count(`select count(*) from pg_stat_activity where state = 'active' and query like 'alter table %event_bodies_0%' and pid <> pg_backend_pid()`) == 0
	})
	if err := backup.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the part is dropped after the transaction has ended", func() bool {
		err := purge(30 * time.Minute) // returns an error while the lock is held
		n := s.count(`select count(*) from pg_class where relname = 'event_bodies_0' and relnamespace = (select oid from pg_namespace where nspname = $1)`, s.schema)
		return err == nil && n == 0
	})
}

// A Purge keeps events that are published after it, even if its times are in the future. It also
// keeps events published before it by a transaction that is still open.
func TestPurge_TimesInFuture_KeepsLaterEvents(t *testing.T) {
	s := newParted(t)
	s.publish("1")
	tx, err := pool(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	time.Sleep(time.Millisecond)
	if _, err := s.EnqueueTx(t.Context(), tx, ofAcct("open")); err != nil {
		t.Fatal(err)
	}
	s.purge(time.Now().Add(time.Hour))
	s.want()
	s.publish("young")
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Published("acct")
	s.want("young", "open")
	s.publish("young", "open") // the ids are known, so this stores nothing
	s.deliver(driver.Deliver, "open", "young")
	s.want("young", "open")
	s.purge(time.Now().Add(time.Hour))
	s.want()
	s.publish("young")
	s.deliver(driver.Deliver, "young")
}

// A Purge may be interrupted at any point, by the end of its context or by the loss of a
// connection, while other nodes purge at the same time.
func TestPurge_Interrupted_CanBeRepeated(t *testing.T) {
	t.Parallel()
	s := newParted(t)
	line := newRelay(t)
	far, err := postgres.Open(t.Context(), line.dsn(t, "pool_max_conns=2 application_name=cut_short"), s.option)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = far.Close() }()
	var young []string
	for round := range 8 {
		for i := range 20 {
			s.publish(fmt.Sprint("old", round, " ", i))
		}
		s.split()
		border := s.split()
		young = append(young, fmt.Sprint("young", round))
		s.publish(young[len(young)-1])
		purge := driver.Purge{Payloads: border, Attempts: border, EventIDs: border, Limit: 7}
		var group sync.WaitGroup
		for _, by := range []*postgres.Store{s.Store, far} {
			group.Go(func() {
				for range 30 {
					ctx, cancel := context.WithTimeout(t.Context(), rand.N(20*time.Millisecond))
					_, _ = by.Purge(ctx, purge)
					cancel()
				}
			})
		}
		group.Go(func() { // makes the server end sessions
			for range 5 {
				time.Sleep(rand.N(50 * time.Millisecond))
				if _, err := pool(t).Exec(t.Context(), `select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'cut_short'`); err != nil {
					t.Error(err)
				}
			}
		})
		group.Wait()
		other := *s
		other.Store = open(t, s.option)
		for more := true; more; {
			if more, err = other.Purge(t.Context(), purge); err != nil {
				t.Fatal(err)
			}
		}
		s.want(young[len(young)-1])
		if n := s.count(`select count(*) from {}.partitions where below <= (select event from {}.marks where name = 'ids') and kind <> 'event_ids'`); n != 0 {
			t.Errorf("%d parts are noted that are past", n)
		}
		if n := s.count(`select count(*) from {}.partitions p where kind <> 'event_ids' and not exists (
			select from pg_class where relname = p.name and relnamespace = (select oid from pg_namespace where nspname = $1))`, s.schema); n != 0 {
			t.Errorf("%d parts are noted that are not there", n)
		}
		s.deliver(driver.Deliver, young[len(young)-1])
	}
}

// Lists, claims, settlements and publications work while parts are made and dropped.
func TestPartitions_MadeAndDropped_StatementsKeepWorking(t *testing.T) {
	t.Parallel()
	s := newParted(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var group sync.WaitGroup
	var mu sync.Mutex
	longest := make(map[string]time.Duration)
	work := func(name string, step func(i int) error) {
		group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				begun := time.Now()
				if err := step(i); err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v", name, err)
					return
				}
				mu.Lock()
				longest[name] = max(longest[name], time.Since(begun))
				mu.Unlock()
			}
		})
	}
	work("publish", func(i int) error {
		_, err := s.Enqueue(t.Context(), ofAcct(fmt.Sprint(i)))
		return err
	})
	work("deliver", func(int) error {
		tasks, err := storetest.WorkerOf(s).Claim(t.Context(), 10)
		if err != nil || len(tasks) == 0 {
			return err
		}
		var list []storetest.Settlement
		for _, task := range tasks {
			if string(task.Event.Body) != `"`+task.Event.ID+`"` && task.Err == nil {
				t.Errorf("the body of %s is %s", task.Event.ID, task.Event.Body)
			}
			list = append(list, storetest.Settlement{Task: task, Effect: driver.Deliver, Attempt: driver.Attempt{Number: task.Attempt, StartedAt: time.Now()}})
		}
		_, err = storetest.WorkerOf(s).Settle(t.Context(), list)
		return err
	})
	work("list", func(i int) error {
		if _, err := s.ListDeliveries(t.Context(), "acct", "a", driver.DeliveryQuery{Limit: 50, Failed: i%2 == 0}); err != nil {
			return err
		}
		_, err := s.ListEvents(t.Context(), "acct", driver.EventQuery{Limit: 50, OldestFirst: i%2 == 0})
		return err
	})
	for range 10 {
		time.Sleep(50 * time.Millisecond)
		s.split()
		border := s.split()
		begun := time.Now()
		s.purge(border)
		mu.Lock()
		longest["purge"] = max(longest["purge"], time.Since(begun))
		mu.Unlock()
	}
	stop()
	group.Wait()
	t.Log("longest: ", longest)
}
