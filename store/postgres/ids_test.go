package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
)

// An idTest has a store in which the account acct has two webhooks, one on and one off.
type idTest struct {
	*testing.T
	*postgres.Store
	schema string
}

func newIDTest(t *testing.T) *idTest {
	name, option := migratedSchema(t)
	s := &idTest{t, open(t, option), name}
	for _, id := range []string{"on", "off"} {
		w := newWebhook("acct", id)
		w.Active = id == "on"
		if err := s.CreateWebhook(t.Context(), w, driver.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// begin begins a transaction of the host that has no snapshot yet.
func (s *idTest) begin(level pgx.TxIsoLevel) pgx.Tx {
	s.Helper()
	tx, err := pool(s.T).BeginTx(s.Context(), pgx.TxOptions{IsoLevel: level})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func (s *idTest) count(sql string, args ...any) (n int) {
	s.Helper()
	if err := pool(s.T).QueryRow(context.Background(), strings.ReplaceAll(sql, "storageapi.", quoted(s.schema)+"."), args...).Scan(&n); err != nil {
		s.Fatal(err)
	}
	return n
}

// change makes the next part of event_ids, and returns once that part has begun.
func (s *idTest) change() {
	s.Helper()
	if err := s.ChangeIDs(s.Context(), 0); err != nil {
		s.Fatal(err)
	}
}

func event(id string) driver.EncodedEvent {
	return driver.EncodedEvent{ID: id, Account: "acct", Type: alerts.TypeBalanceLow, Body: []byte("{}"), Timestamp: time.Now()}
}

func (s *idTest) publish(id string) {
	s.Helper()
	if n, err := s.Enqueue(s.Context(), event(id)); n != 1 || err != nil {
		s.Fatalf("Enqueue(%s) = %d, %v, want 1", id, n, err)
	}
}

func (s *idTest) publishIn(tx pgx.Tx, id string) error {
	s.Helper()
	n, err := s.EnqueueTx(s.Context(), tx, event(id))
	if err == nil && n != 1 {
		s.Fatalf("EnqueueTx(%s) = %d, want 1", id, n)
	}
	return err
}

// must publishes in a transaction of the host, or fails the test.
func (s *idTest) must(tx pgx.Tx, id string) {
	s.Helper()
	if err := s.publishIn(tx, id); err != nil {
		s.Fatal(err)
	}
}

func (s *idTest) commit(tx pgx.Tx) {
	s.Helper()
	if err := tx.Commit(s.Context()); err != nil {
		s.Fatal(err)
	}
}

// later runs do in the background, and fails the test if do returns at once instead of waiting for
// a lock. result waits for do and returns its error.
func (s *idTest) later(do func() error) (result func() error) {
	s.Helper()
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		s.Fatalf("it did not wait: %v", err)
	case <-time.After(150 * time.Millisecond):
	}
	return func() error { return <-done }
}

// want checks that each event is stored the given number of times, with its delivery and its
// skipped delivery.
func (s *idTest) want(times int, ids ...string) {
	s.Helper()
	for _, id := range ids {
		events := s.count(`select count(*) from storageapi.event_log where id = $1`, id)
		pending := s.count(`select count(*) from storageapi.pending p where exists (select from storageapi.event_log where event = p.event and id = $1)`, id)
		skipped := s.count(`select count(*) from storageapi.attempt_log a where state = 3 and exists (select from storageapi.event_log where event = a.event and id = $1)`, id)
		if events != times || pending != times || skipped != times {
			s.Errorf("%s is stored %d times, pending %d and skipped %d, want %d", id, events, pending, skipped, times)
		}
		if _, _, err := s.EventByID(s.Context(), "acct", id); err != nil {
			s.Errorf("EventByID(%s) = %v", id, err)
		}
		if list, err := s.EventDeliveries(s.Context(), "acct", id); len(list) != 2 || err != nil {
			s.Errorf("EventDeliveries(%s) = %d, %v", id, len(list), err)
		}
	}
	for _, table := range []string{"pending", "attempt_log", "failure_log"} {
		if n := s.count(`select count(*) from storageapi.` + table + ` t where not exists (select from storageapi.event_log where event = t.event)`); n > 0 {
			s.Errorf("%s has %d rows of no event", table, n)
		}
	}
}

// mark moves the mark past all existing ids.
func (s *idTest) mark() {
	s.Helper()
	in(s.T, s.schema, `update marks set event = (select event + 1 from event_log order by event desc limit 1) where name = 'ids'`)
}

// refused checks that a transaction failed because of a conflict with an earlier transaction.
func (s *idTest) refused(err error) {
	s.Helper()
	var answer *pgconn.PgError
	if !errors.As(err, &answer) || answer.Code != "40001" {
		s.Fatalf("%v, want a serialization failure", err)
	}
}

// An ID is recognized as a duplicate in any partition after the mark, even if new IDs now go to
// another partition.
func TestPublish_IDFromEarlierPartition_IsStoredOnce(t *testing.T) {
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			s := newIDTest(t)
			ids := []string{"a", "b", "c", "d"}
			for i := range ids {
				s.publish(ids[i])
				s.change()
				for _, id := range ids[:i+1] {
					s.publish(id)
					tx := s.begin(level)
					s.must(tx, id)
					s.commit(tx)
				}
			}
			s.want(1, ids...)
			if n := s.count(`select count(*) from storageapi.event_ids`); n != len(ids) {
				t.Errorf("%d IDs are stored, want %d", n, len(ids))
			}
		})
	}
}

// Within a part a publication waits for an open transaction that has published its ID.
func TestPublish_IDInAnOpenTransaction_Waits(t *testing.T) {
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			s := newIDTest(t)
			tx := s.begin(level)
			s.must(tx, "committed")
			other := s.later(func() error { _, err := s.Enqueue(s.Context(), event("committed")); return err })
			s.commit(tx)
			if err := other(); err != nil {
				t.Error(err)
			}
			tx = s.begin(level)
			s.must(tx, "undone")
			other = s.later(func() error { _, err := s.Enqueue(s.Context(), event("undone")); return err })
			_ = tx.Rollback(t.Context())
			if err := other(); err != nil {
				t.Error(err)
			}
			s.want(1, "committed", "undone")
		})
	}
}

// If an ID was committed by another transaction after this transaction took its snapshot,
// publishing the ID fails, like a concurrent update of the same row.
func TestPublish_IDCommittedAfterTheSnapshot_Conflicts(t *testing.T) {
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		s := newIDTest(t)
		tx := s.begin(level)
		if _, err := tx.Exec(t.Context(), `select count(*) from pg_class`); err != nil {
			t.Fatal(err)
		}
		s.publish("x")
		s.refused(s.publishIn(tx, "x"))
		s.want(1, "x")
	}
}

// Parts of event_ids begin and are dropped while a transaction is open or prepared.
func TestPurge_PreparedTransaction_PartitionsContinue(t *testing.T) {
	s := newIDTest(t)
	open := s.begin(pgx.ReadCommitted)
	s.must(open, "open")
	if s.count(`select setting::integer from pg_settings where name = 'max_prepared_transactions'`) > 0 {
		tx := s.begin(pgx.ReadCommitted)
		s.must(tx, "prepared")
		if _, err := tx.Exec(t.Context(), `prepare transaction 'ids'`); err != nil {
			t.Fatal(err)
		}
		defer func() { _, _ = pool(t).Exec(context.Background(), `rollback prepared 'ids'`) }()
	}
	for range 2 {
		if _, err := s.Purge(t.Context(), driver.Purge{EventIDs: time.Now().Add(-3 * time.Hour), Limit: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.count(`select count(*) from storageapi.partitions where kind = 'event_ids'`); n != 1 { // the first part lasts eight days
		t.Errorf("%d parts, want 1", n)
	}
	in(t, s.schema, `update partitions set below = 1 where kind = 'event_ids'`) // as if the eight days had passed
	for range 2 {
		if _, err := s.Purge(t.Context(), driver.Purge{EventIDs: time.Now().Add(-3 * time.Hour), Limit: 1}); err != nil {
			t.Fatal(err)
		}
	}
	now := numberOf(time.Now())
	if n := s.count(`select count(*) from storageapi.partitions where kind = 'event_ids' and least > $1 and below > $2`, now, now+numberOf(time.Date(2020, 1, 1, 1, 0, 0, 0, time.UTC))); n != 1 {
		t.Errorf("%d parts begin after now and end after an hour, want 1", n)
	}
	if n := s.count(`select count(*) from storageapi.partitions where kind = 'event_ids' and least = 0 and below > $1`, now); n != 1 {
		t.Error("the present part ends before the next begins")
	}
	s.publish("x")
	s.want(1, "x")
}

// Publishing does not make serializable transactions of the host conflict.
func TestPublishTx_Serializable_DoesNotConflict(t *testing.T) {
	const publishers, each = 8, 40
	s := newIDTest(t)
	s.publish("before")
	s.change()
	config := pool(t).Config()
	config.MaxConns = publishers
	p, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var group sync.WaitGroup
	var failed atomic.Int64
	for n := range publishers {
		group.Go(func() {
			for i := range each {
				err := pgx.BeginTxFunc(t.Context(), p, pgx.TxOptions{IsoLevel: pgx.Serializable}, func(tx pgx.Tx) error {
					for k := range 2 {
						if _, err := s.EnqueueTx(t.Context(), tx, event(fmt.Sprintf("evt_%d_%d_%d", n, i, k))); err != nil {
							return err
						}
					}
					return nil
				})
				var answer *pgconn.PgError
				switch {
				case errors.As(err, &answer) && answer.Code == "40001":
					failed.Add(1)
				case err != nil:
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if n := failed.Load(); n > 0 {
		t.Errorf("%d of %d transactions failed with 40001, want none", n, publishers*each)
	}
}

// IDs before the mark are unknown, no matter which part they are in, and can be published again.
// IDs after the mark are known and cannot. Parts that end before the mark are dropped.
func TestPublish_IDBeforeMark_IsNew(t *testing.T) {
	s := newIDTest(t)
	s.publish("a")
	s.mark()
	if _, _, err := s.EventByID(t.Context(), "acct", "a"); !errors.Is(err, apierr.ErrNotFound) {
		t.Errorf("EventByID of what is past = %v, want ErrNotFound", err)
	}
	s.publish("a")
	s.want(2, "a")
	s.publish("b")
	s.change()
	s.mark()
	s.publish("a")
	s.publish("b")
	s.publish("c")
	s.publish("a")
	s.want(3, "a")
	s.want(2, "b")
	s.change()
	s.publish("d")
	s.mark()
	s.publish("a")
	s.want(4, "a")
	tables := func() int {
		return s.count(`select count(*) from pg_inherits where inhparent = $1::text::regclass`, quoted(s.schema)+".event_ids")
	}
	if _, err := s.Purge(t.Context(), driver.Purge{Limit: 1}); err != nil || tables() != 1 {
		t.Fatalf("%d parts of the IDs are there, %v, want 1", tables(), err)
	}
	s.publish("a")
	s.publish("b")
	s.want(4, "a")
	s.want(3, "b")
}
