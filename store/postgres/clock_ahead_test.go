package postgres_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/storetest"
)

const month = 744 * time.Hour

// An aheadStore is a store whose connections see a database clock that the test can set.
type aheadStore struct {
	*postgres.Store
	t      *testing.T
	pool   *pgxpool.Pool
	schema string
	option postgres.Option
	ahead  func(time.Duration)
}

func newAheadStore(t *testing.T) *aheadStore {
	t.Helper()
	name, option := migratedSchema(t)
	p, ahead := otherClock(t)
	s := &aheadStore{nil, t, p, name, option, ahead}
	s.Store = s.node()
	return s
}

// node opens another node on the same schema.
func (s *aheadStore) node() *postgres.Store {
	s.t.Helper()
	node, err := postgres.New(s.t.Context(), s.pool, s.option)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = node.Close() })
	return node
}

func (s *aheadStore) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// publish publishes n events of the account "acct".
func (s *aheadStore) publish(prefix string, n int) {
	s.t.Helper()
	for i := range n {
		_, err := s.Enqueue(s.t.Context(), driver.EncodedEvent{
			ID: fmt.Sprint(prefix, i), Account: "acct", Type: alerts.TypeBalanceLow, Body: []byte(`{}`),
		})
		s.must(err)
	}
}

// maintain purges data older than 30 days, as a node does regularly.
func maintain(t *testing.T, node *postgres.Store) {
	t.Helper()
	purgeAt(t, node, now(t, node))
}

func now(t *testing.T, node *postgres.Store) time.Time {
	t.Helper()
	now, err := node.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return now
}

func purgeAt(t *testing.T, node *postgres.Store, now time.Time) {
	t.Helper()
	before := now.Add(-30 * 24 * time.Hour)
	for more := true; more; {
		var err error
		more, err = node.Purge(t.Context(), driver.Purge{Payloads: before, Attempts: before, EventIDs: before, DedupKeys: before, AuditEntries: before, Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// deliverable claims on a node and returns the number of tasks that have a body.
func deliverable(t *testing.T, node *postgres.Store) (n int) {
	t.Helper()
	for until := time.Now().Add(5 * time.Second); time.Now().Before(until); {
		tasks, err := storetest.WorkerOf(node).Claim(t.Context(), 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			if task.Err == nil {
				n++
			}
		}
		if len(tasks) == 0 {
			break
		}
	}
	return n
}

func TestPurge_ClockAMonthAheadForAMinute_KeepsPending(t *testing.T) {
	for name, purge := range map[string]func(t *testing.T, s *aheadStore){
		"one node": func(t *testing.T, s *aheadStore) {
			maintain(t, s.Store)
			s.ahead(month)
			maintain(t, s.Store)
			maintain(t, s.Store)
		},
		"a node that looks for the first time": func(t *testing.T, s *aheadStore) {
			other := s.node()
			maintain(t, s.Store)
			s.ahead(month)
			maintain(t, other)
			maintain(t, s.Store)
			maintain(t, other)
		},
		"twice": func(t *testing.T, s *aheadStore) {
			s.ahead(month)
			maintain(t, s.Store)
			s.ahead(2 * month)
			maintain(t, s.Store)
		},
		"the age counted before the clock is right again": func(t *testing.T, s *aheadStore) {
			s.ahead(month)
			ahead := now(t, s.Store)
			s.ahead(0)
			purgeAt(t, s.Store, ahead)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAheadStore(t)
			s.must(s.CreateWebhook(t.Context(), newWebhook("acct", "a"), driver.CreateOptions{}))
			s.publish("event", 20)
			_, err := s.AddAuditEntries(t.Context(), []audit.Entry{entryNo(audit.TargetAccount, "", 1)})
			s.must(err)
			purge(t, s)
			s.publish("meanwhile", 3)
			s.ahead(0)
			maintain(t, s.Store)
			if n := deliverable(t, s.Store); n != 23 {
				t.Errorf("%d of 23 events can be delivered after the clock was ahead", n)
			}
			if deliveries, err := s.Enqueue(t.Context(), encoded("event0")); err != nil || deliveries != 1 {
				t.Errorf("an event that was published before: %d deliveries, %v, want the 1 of its first time", deliveries, err)
			}
			var last int64
			s.must(pool(t).QueryRow(t.Context(), `select max(below) from `+quoted(s.schema)+`.partitions`).Scan(&last))
			if limit := numberOf(time.Now().Add(25 * 24 * time.Hour)); last > limit {
				t.Errorf("the last part of a table ends %v after those of 25 days, while the clock was ahead", time.Duration((last-limit)/4096)*time.Microsecond)
			}
			var rows int
			s.must(pool(t).QueryRow(t.Context(), `select count(*) from `+quoted(s.schema)+`.event_bodies`).Scan(&rows))
			if rows != 23 {
				t.Errorf("%d bodies are kept, want 23", rows)
			}
			s.must(pool(t).QueryRow(t.Context(), `select count(*) from `+quoted(s.schema)+`.audit`).Scan(&rows))
			if rows != 1 {
				t.Errorf("%d audit entries are kept, want 1", rows)
			}
		})
	}
}

// A clock that stays ahead is accepted after the nodes together have observed it for a day.
func TestPurge_ClockAMonthAheadForADay_IsAccepted(t *testing.T) {
	s := newAheadStore(t)
	other := s.node()
	s.must(s.CreateWebhook(t.Context(), newWebhook("acct", "a"), driver.CreateOptions{}))
	s.publish("event", 5)
	maintain(t, s.Store)
	bodies := func() (n int) {
		t.Helper()
		s.must(pool(t).QueryRow(t.Context(), `select count(*) from `+quoted(s.schema)+`.pending`).Scan(&n))
		return n
	}
	const step = 50 * time.Minute
	for at := time.Duration(0); at < 24*time.Hour; at += step {
		s.ahead(month + at)
		maintain(t, []*postgres.Store{s.Store, other}[int(at/step)%2])
		if n := bodies(); n != 5 {
			t.Fatalf("after %v %d of 5 are pending", at, n)
		}
	}
	s.ahead(month + 24*time.Hour + step)
	maintain(t, other)
	maintain(t, s.Store)
	if n := bodies(); n != 0 {
		t.Errorf("%d are pending for a month, by a clock that has been believed for a day", n)
	}
}

// Capabilities.Doubt reports the unconfirmed time, which postpones turning off failing webhooks.
func TestDoubt_ClockAMonthAhead_IsAMonth(t *testing.T) {
	s := newAheadStore(t)
	for _, test := range []struct{ ahead, want time.Duration }{{0, 0}, {month, month}, {0, 0}} {
		s.ahead(test.ahead)
		maintain(t, s.Store)
		if got := s.Capabilities().Doubt(); (got - test.want).Abs() > time.Minute {
			t.Errorf("Doubt = %v with a clock that is %v ahead, want %v", got, test.ahead, test.want)
		}
	}
}

func TestCreate_ClockAMonthAhead_RemembersIdempotencyKeys(t *testing.T) {
	s := newAheadStore(t)
	create := func(id string) error {
		hash := driver.Hash{}
		copy(hash.Sum[:], id)
		return s.CreateKey(t.Context(), driver.Key{ID: id, Account: "acct", Hash: hash},
			driver.CreateOptions{IdempotencyKey: "request " + id[:1], IdempotencyTTL: 24 * time.Hour, MaxIdempotencyKeys: 3})
	}
	s.must(create("a1"))
	s.ahead(month)
	if err := create("a2"); err == nil {
		t.Error("a request is made twice while the clock is ahead")
	}
	s.must(create("b1"))
	s.ahead(0)
	for _, id := range []string{"a3", "b2"} {
		if err := create(id); err == nil {
			t.Errorf("the request of %s is made again once the clock is right", id)
		}
	}
	// Keys that were recorded while the clock was ahead are not kept for an extra month.
	s.must(pool(t).QueryRow(t.Context(), `select 1 from `+quoted(s.schema)+`.requests having count(*) = 2 and max(at) < now() + interval '61 minutes'`).Scan(new(int)))
}

func TestLeaseAuditEntries_ClockAheadForAMinute_ExpiresOnTime(t *testing.T) {
	s := newAheadStore(t)
	lease := func(holder string, want bool) {
		t.Helper()
		held, err := s.LeaseAudit(t.Context(), holder, time.Minute)
		if err != nil || held != want {
			t.Errorf("LeaseAudit of %s = %v, %v, want %v", holder, held, err, want)
		}
	}
	lease("a", true)
	maintain(t, s.Store)
	s.ahead(month)
	maintain(t, s.Store)
	lease("b", false) // the first holder still has the lease
	lease("a", true)
	s.ahead(0)
	maintain(t, s.Store)
	_, err := pool(t).Exec(t.Context(), `update `+quoted(s.schema)+`.audit_lease set until = until + interval '1 month'`) // as if written by a clock that was never observed
	s.must(err)
	lease("b", true)
}

// While the clock is ahead, deliveries are published, retried and made due. They must become due on
// time, even on a node that loads them later.
func TestClaim_MadeDueWhileClockAhead_IsDueOnTime(t *testing.T) {
	for name, looks := range map[string]bool{"a node looked": true, "no node looked": false} {
		t.Run(name, func(t *testing.T) {
			s := newAheadStore(t)
			s.must(s.CreateWebhook(t.Context(), newWebhook("acct", "a"), driver.CreateOptions{}))
			s.publish("retried", 3)
			var tasks []storetest.Task
			eventually(t, "three tasks", func() bool {
				more, err := storetest.WorkerOf(s).Claim(t.Context(), 9)
				s.must(err)
				tasks = append(tasks, more...)
				return len(tasks) == 3
			})
			settle := func(task storetest.Task, outcome driver.Effect, after time.Duration) {
				t.Helper()
				stale, err := storetest.WorkerOf(s).Settle(t.Context(), []storetest.Settlement{{
					Task: task, Effect: outcome, RetryAfter: after,
					Attempt: driver.Attempt{Number: 1, StartedAt: time.Now(), Class: driver.ClassStatus, Status: 503, Error: "503"},
				}})
				s.must(err)
				if len(stale) > 0 {
					t.Fatal("a settlement is stale")
				}
			}
			settle(tasks[2], driver.GiveUp, 0)
			s.ahead(month)
			if looks {
				maintain(t, s.Store)
			}
			settle(tasks[0], driver.Retry, 0)
			settle(tasks[1], driver.Retry, 20*time.Hour)
			s.publish("published", 3)
			s.must(s.Redeliver(t.Context(), "acct", "a", tasks[2].Event.ID, audit.Entry{}))
			s.ahead(0)
			s.must(s.Close())
			loaded := s.node()
			backlog, err := storetest.WorkerOf(loaded).Backlog(t.Context(), "")
			if err != nil || backlog.OldestDue.IsZero() || time.Since(backlog.OldestDue).Abs() > time.Hour {
				t.Errorf("Backlog of a node that owns nothing = %+v, %v, want what is due", backlog, err)
			}
			dueIn := loaded.Join(t)
			for in, want := range map[time.Duration]int{time.Second: 5, 61 * time.Minute: 5, 19 * time.Hour: 5, 22 * time.Hour: 6} {
				if got := dueIn(in); got != want {
					t.Errorf("%d deliveries are due within %v, want %d", got, in, want)
				}
			}
		})
	}
}

// When a clock that was ahead is corrected, the confirmed clock stands still until a node observes
// the correction. This makes retries late. A delivering node observes the clock every 10 s.
func TestDeliver_ClockCorrected_RetriesAreDueSoon(t *testing.T) {
	t.Parallel()
	s := newAheadStore(t)
	s.must(s.CreateWebhook(t.Context(), newWebhook("acct", "a"), driver.CreateOptions{}))
	s.publish("retried", 1)
	worker := storetest.WorkerOf(s)
	tasks, err := worker.Await(t.Context(), 1)
	s.must(err)
	_, err = worker.Settle(t.Context(), []storetest.Settlement{{
		Task: tasks[0], Effect: driver.Retry, Attempt: driver.Attempt{Number: 1, StartedAt: time.Now(), Class: driver.ClassStatus, Status: 503, Error: "503"},
	}})
	s.must(err)
	_, err = pool(t).Exec(t.Context(), `update `+quoted(s.schema)+`.clock set seen = seen - interval '50 minutes'`) // as if not observed since
	s.must(err)
	s.ahead(month)
	maintain(t, s.Store)
	s.ahead(0)
	set := time.Now()
	behind := func() (by float64) {
		s.must(pool(t).QueryRow(t.Context(), `select extract(epoch from clock_timestamp() - `+quoted(s.schema)+`.confirmed_clock())`).Scan(&by))
		return by
	}
	if by := behind(); by < 60 {
		t.Fatalf("the confirmed clock is %v s behind, want 50 minutes", by)
	}
	eventually(t, "a confirmed clock that is right", func() bool { return behind() < 1 })
	if took := time.Since(set); took > 20*time.Second {
		t.Errorf("the node observed that the clock was set right after %v, want 10 s", took)
	}
	_, err = s.Unreported(t.Context(), "") // observes the clock
	s.must(err)
	if tasks, err = worker.Claim(t.Context(), 1); err != nil || len(tasks) != 1 {
		t.Errorf("Claim = %d retries, %v, want 1", len(tasks), err)
	}
}

// An event is published while the clock is a year ahead. The times of later events must be off by
// at most an hour, and a client that follows the list must miss no event.
func TestEnqueue_ClockAYearAhead_TimesAreAnHourAheadAtMost(t *testing.T) {
	s := newAheadStore(t)
	s.must(s.CreateWebhook(t.Context(), newWebhook("acct", "a"), driver.CreateOptions{}))
	query := driver.EventQuery{OldestFirst: true, Limit: 99}
	s.publish("before", 1)
	s.ahead(365 * 24 * time.Hour)
	s.publish("ahead", 1)
	maintain(t, s.Store)
	s.must(s.CreateRecovery(t.Context(), driver.Recovery{ID: "recovery", Account: "acct", WebhookID: "a"}, audit.Entry{}))
	wantPage(t, s.Store, &query, false, "before0", "ahead0")
	tx, err := s.pool.Begin(t.Context())
	s.must(err)
	_, err = s.EnqueueTx(t.Context(), tx, encoded("late"))
	s.must(err)
	s.publish("after", 1)
	wantPage(t, s.Store, &query, true)
	s.ahead(0)
	wantPage(t, s.Store, &query, true)
	s.must(tx.Commit(t.Context()))
	s.publish("right", 1)
	wantPage(t, s.Store, &query, false, "late", "after0", "right0")
	page, err := s.ListEvents(t.Context(), "acct", driver.EventQuery{OldestFirst: true, Limit: 99})
	s.must(err)
	for _, e := range page.Events {
		if until := time.Until(e.PublishedAt); until > 61*time.Minute {
			t.Errorf("%s was published in %v", e.ID, until)
		}
	}
}

func TestConfirmedClock_Observed_DoubtsJumps(t *testing.T) {
	const hour, day = time.Hour, 24 * time.Hour
	every := func(step, from, to time.Duration) (list []time.Duration) {
		for at := from; at <= to; at += step {
			list = append(list, at)
		}
		return list
	}
	for name, test := range map[string]struct {
		seen       []time.Duration
		want, most time.Duration // doubt at the end, and maximum doubt at any time
	}{
		"never set":                         {every(hour, 0, 90*day), 0, 0},
		"ahead":                             {[]time.Duration{month}, month, month},
		"ahead for a minute":                {[]time.Duration{month, 60 * time.Second}, 0, month},
		"ahead for almost a day":            {every(hour, month, month+day-hour), month, month},
		"ahead for a day":                   {every(hour, month, month+day), 0, month},
		"ahead, and right after 23 h":       {append(every(hour, month, month+23*hour), 23*hour), 0, month},
		"ahead again within a day":          {append(every(hour, month, month+22*hour), 2*month), 2*month - 22*hour, 2*month - 22*hour},
		"back":                              {[]time.Duration{hour, -month}, 0, 0},
		"back, and right after a minute":    {[]time.Duration{-month, 60 * time.Second}, month + time.Minute, month + time.Minute},
		"back, and right for a day":         {append([]time.Duration{-month}, every(hour, 0, day)...), 0, month},
		"stopped for a month":               {[]time.Duration{month}, month, month},
		"looked at once in three hours":     {every(3*hour, 0, 300*hour), 72 * hour, 72 * hour},
		"to and fro, by an hour at a time":  {[]time.Duration{hour, 0, hour, 0, hour}, 0, 0},
		"ahead by two jumps, and one right": {[]time.Duration{month, 2 * month, month}, month, 2 * month},
	} {
		doubts := postgres.Doubts(test.seen...)
		if got := doubts[len(doubts)-1]; got != test.want || slices.Max(doubts) != test.most {
			t.Errorf("%s: %v are doubted, and %v at most, want %v and %v", name, got, slices.Max(doubts), test.want, test.most)
		}
	}
}
