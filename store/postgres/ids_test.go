package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/webhooks"
)

// A slotTest has a store whose slots of ids a test turns, and one webhook of the account acct.
type slotTest struct {
	*testing.T
	*postgres.Store
	schema string
}

func slotsOf(t *testing.T) *slotTest {
	name, option := migratedSchema(t)
	s := &slotTest{t, open(t, option), name}
	for _, id := range []string{"on", "off"} {
		w := newWebhook("acct", id)
		w.Active = id == "on"
		if err := s.CreateWebhook(t.Context(), w, webhooks.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// begin begins a transaction of the host that has not looked at anything.
func (s *slotTest) begin(level pgx.TxIsoLevel) pgx.Tx {
	s.Helper()
	tx, err := pool(s.T).BeginTx(s.Context(), pgx.TxOptions{IsoLevel: level})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func (s *slotTest) count(sql string, args ...any) (n int) {
	s.Helper()
	if err := pool(s.T).QueryRow(context.Background(), strings.ReplaceAll(sql, "storageapi.", quoted(s.schema)+"."), args...).Scan(&n); err != nil {
		s.Fatal(err)
	}
	return n
}

func (s *slotTest) current() int { return s.count(`select last_value from storageapi.id_slot`) }
func (s *slotTest) unsealed() int {
	return s.count(`select count(*) from storageapi.id_slots where not sealed`)
}

// turn turns the slots once.
func (s *slotTest) turn() {
	s.Helper()
	if err := s.TurnSlots(s.Context(), 0); err != nil {
		s.Fatal(err)
	}
}

// rotate has the next slot begin at the next turn, begins a transaction and then the slot.
func (s *slotTest) rotate(between func()) {
	s.Helper()
	was := s.current()
	for s.unsealed() > 1 {
		s.turn()
	}
	s.turn() // who is adding ids
	if s.current() != was {
		s.Fatal("the slot began early")
	}
	if between(); s.current() != was {
		s.Fatal("the slot began early")
	}
	s.turn()
	if s.current() != was+1 {
		s.Fatalf("slot %d did not begin", was+1)
	}
}

// seal has the slot before the last one sealed, which must be so or not.
func (s *slotTest) seal(want bool) {
	s.Helper()
	for range 3 {
		s.turn()
		if s.unsealed() == 1 {
			break
		}
	}
	if is := s.unsealed() == 1; is != want {
		s.Fatalf("sealed: %v, want %v", is, want)
	}
}

func event(id string) webhooks.EncodedEvent {
	return webhooks.EncodedEvent{ID: id, Account: "acct", Type: webhooks.TypeBalanceLow, Body: []byte("{}"), Timestamp: time.Now()}
}

func (s *slotTest) publish(id string) {
	s.Helper()
	if n, err := s.Enqueue(s.Context(), event(id)); n != 1 || err != nil {
		s.Fatalf("Enqueue(%s) = %d, %v, want 1", id, n, err)
	}
}

func (s *slotTest) publishIn(tx pgx.Tx, id string) error {
	s.Helper()
	n, err := s.EnqueueTx(s.Context(), tx, event(id))
	if err == nil && n != 1 {
		s.Fatalf("EnqueueTx(%s) = %d, want 1", id, n)
	}
	return err
}

// must publishes in a transaction of the host.
func (s *slotTest) must(tx pgx.Tx, id string) {
	s.Helper()
	if err := s.publishIn(tx, id); err != nil {
		s.Fatal(err)
	}
}

func (s *slotTest) commit(tx pgx.Tx) {
	s.Helper()
	if err := tx.Commit(s.Context()); err != nil {
		s.Fatal(err)
	}
}

// later does something that waits for others until its result is asked for.
func (s *slotTest) later(do func() error) (result func() error) {
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

// want reports whether each event is stored as many times, with its delivery and its skipped one.
func (s *slotTest) want(times int, ids ...string) {
	s.Helper()
	for _, id := range ids {
		events := s.count(`select count(*) from storageapi.event_log where id = $1`, id)
		pending := s.count(`select count(*) from storageapi.pending p where exists (select from storageapi.event_log where event = p.event and id = $1)`, id)
		skipped := s.count(`select count(*) from storageapi.attempt_log a where state = 3 and exists (select from storageapi.event_log where event = a.event and id = $1)`, id)
		if events != times || pending != times || skipped != times {
			s.Errorf("%s is stored %d times, pending %d and skipped %d, want %d", id, events, pending, skipped, times)
		}
		if _, err := s.EventByID(s.Context(), "acct", id); err != nil {
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

// mark has all ids be past that there are.
func (s *slotTest) mark() {
	s.Helper()
	in(s.T, s.schema, `update marks set event = (select event + 1 from event_log order by event desc limit 1) where name = 'ids'`)
}

// refused reports whether a transaction failed because others came before it.
func (s *slotTest) refused(err error) {
	s.Helper()
	var answer *pgconn.PgError
	if !errors.As(err, &answer) || answer.Code != "40001" {
		s.Fatalf("%v, want a serialization failure", err)
	}
}

// Whoever publishes an id while a slot begins, and whatever of the slots he sees: it is stored once.
func TestIDsWhileSlotBegins(t *testing.T) {
	levels := []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}
	each := func(name string, do func(s *slotTest, level pgx.TxIsoLevel)) {
		for _, level := range levels {
			t.Run(name+"/"+string(level), func(t *testing.T) { do(slotsOf(t), level) })
		}
	}
	each("Committed", func(s *slotTest, level pgx.TxIsoLevel) {
		tx := s.begin(level)
		s.rotate(func() { s.must(tx, "x") })
		other := s.later(func() error { _, err := s.Enqueue(s.Context(), event("x")); return err })
		s.seal(false)
		s.commit(tx)
		if err := other(); err != nil {
			s.Error(err)
		}
		s.want(1, "x")
		s.publish("y")
		s.seal(true)
		s.publish("x")
		s.publish("y")
		s.rotate(func() { s.publish("z") })
		for _, id := range []string{"x", "y", "z"} {
			s.publish(id)
		}
		s.want(1, "x", "y", "z")
	})
	each("RolledBack", func(s *slotTest, level pgx.TxIsoLevel) {
		tx := s.begin(level)
		s.rotate(func() { s.must(tx, "x") })
		other := s.later(func() error { _, err := s.Enqueue(s.Context(), event("x")); return err })
		_ = tx.Rollback(s.Context())
		if err := other(); err != nil {
			s.Error(err)
		}
		s.want(1, "x")
		s.seal(true)
		s.publish("x")
		s.want(1, "x")
	})
	// The next slot does not begin while something is open that may not know that this one is the only one.
	each("NotTwice", func(s *slotTest, level pgx.TxIsoLevel) {
		tx := s.begin(level)
		s.rotate(func() { s.must(tx, "x") })
		for range 9 {
			s.turn()
		}
		if s.current() != 2 || s.unsealed() != 2 {
			s.Fatal("slots went on")
		}
		s.commit(tx)
		s.seal(true)
		open := s.begin(level)
		s.must(open, "y")
		for range 9 {
			s.turn()
		}
		if s.current() != 2 {
			s.Fatal("another slot began")
		}
		other := s.later(func() error { _, err := s.Enqueue(s.Context(), event("y")); return err })
		s.commit(open)
		if err := other(); err != nil {
			s.Error(err)
		}
		s.want(1, "x", "y")
	})
	// A statement that has looked at the slots adds its id after another has begun.
	each("Between", func(s *slotTest, level pgx.TxIsoLevel) {
		first, second := s.begin(pgx.ReadCommitted), s.begin(level)
		var waiting func() error
		s.rotate(func() {
			s.must(first, "x")
			waiting = s.later(func() error { return s.publishIn(second, "x") })
		})
		third := s.later(func() error { _, err := s.Enqueue(s.Context(), event("x")); return err })
		s.seal(false)
		_ = first.Rollback(s.Context())
		if err := waiting(); err != nil {
			s.refused(err)
			_ = second.Rollback(s.Context())
		} else {
			s.commit(second)
		}
		if err := third(); err != nil {
			s.Error(err)
		}
		s.want(1, "x")
		s.seal(true)
		s.publish("x")
		s.want(1, "x")
	})
	for _, level := range levels[1:] {
		t.Run(fmt.Sprint("Snapshot/", level), func(t *testing.T) {
			s := slotsOf(t)
			look := func() pgx.Tx {
				tx := s.begin(level)
				if _, err := tx.Exec(t.Context(), `select count(*) from pg_class`); err != nil {
					t.Fatal(err)
				}
				return tx
			}
			early := look()
			s.publish("x")
			s.refused(s.publishIn(early, "x"))
			early = look()
			another := look()
			s.rotate(func() {})
			s.publish("y")
			s.seal(true)
			s.publish("z")
			s.refused(s.publishIn(early, "z"))
			if err := s.publishIn(another, "new"); err != nil {
				t.Fatal(err)
			}
			other := s.later(func() error { _, err := s.Enqueue(t.Context(), event("new")); return err })
			s.commit(another)
			if err := other(); err != nil {
				t.Error(err)
			}
			tooEarly := look()
			s.rotate(func() {})
			s.seal(true)
			s.rotate(func() {})
			s.refused(s.publishIn(tooEarly, "never seen"))
			s.want(1, "x", "y", "z", "new")
		})
	}
	t.Run("Prepared", func(t *testing.T) {
		s := slotsOf(t)
		if s.count(`select setting::integer from pg_settings where name = 'max_prepared_transactions'`) == 0 {
			t.Skip("the server has no prepared transactions")
		}
		tx := s.begin(pgx.ReadCommitted)
		s.rotate(func() { s.must(tx, "x") })
		if _, err := tx.Exec(t.Context(), `prepare transaction 'ids'`); err != nil {
			t.Fatal(err)
		}
		s.seal(false)
		if _, err := pool(t).Exec(t.Context(), `commit prepared 'ids'`); err != nil {
			t.Fatal(err)
		}
		s.seal(true)
		s.publish("x")
		s.want(1, "x")
	})
}

// Ids before the mark are not known, whatever slots they are in, and can be published again; those after it
// cannot. The slots before the mark are dropped.
func TestPastIDs(t *testing.T) {
	s := slotsOf(t)
	s.publish("a")
	s.mark()
	if _, err := s.EventByID(t.Context(), "acct", "a"); !errors.Is(err, webhooks.ErrNotFound) {
		t.Errorf("EventByID of what is past = %v, want ErrNotFound", err)
	}
	s.publish("a")
	s.want(2, "a")
	s.rotate(func() { s.publish("b") })
	s.mark()
	s.publish("a")
	s.publish("b")
	s.publish("c")
	s.seal(true)
	s.publish("a")
	s.want(3, "a")
	s.want(2, "b")
	s.mark()
	s.publish("a")
	s.publish("b")
	s.want(4, "a")
	s.want(3, "b")
	tables := func() int {
		return s.count(`select count(*) from pg_inherits where inhparent = $1::text::regclass`, quoted(s.schema)+".event_ids")
	}
	if err := s.DropSlots(t.Context()); err != nil || tables() != 4 { // 0, 1, 2 and the next one
		t.Fatal(tables(), err)
	}
	s.rotate(func() { s.publish("d") })
	s.seal(true)
	s.mark()
	s.publish("d")
	if err := s.DropSlots(t.Context()); err != nil || tables() != 4 {
		t.Fatal(tables(), err)
	}
	s.publish("d")
	s.want(2, "d")
}

// A dump in which three slots have begun has their number, neither them nor the tables of two of them.
// The first node on it begins them, and they are dropped as all others.
func TestSlotsThatADumpLacks(t *testing.T) {
	s := slotsOf(t)
	s.publish("a")
	for range 3 {
		s.rotate(func() {})
		s.seal(true)
	}
	in(t, s.schema, `delete from id_slots where slot > 1; update id_slots set sealed = false, below = null; drop table event_ids_3, event_ids_4, event_ids_5`)
	s.Store = open(t, postgres.InSchema(s.schema))
	s.publish("a")
	s.publish("b")
	s.want(1, "a", "b")
	s.rotate(func() { s.publish("c") })
	s.seal(true)
	s.mark()
	s.rotate(func() { s.publish("d") })
	s.seal(true)
	if err := s.DropSlots(t.Context()); err != nil {
		t.Fatal(err)
	}
	if first := s.count(`select min(slot) from storageapi.id_slots`); first != 4 {
		t.Errorf("the first slot is %d, want 4", first)
	}
	s.publish("a")
	s.publish("d")
	s.want(2, "a")
	s.want(1, "d")
}

// Many publish few ids while slots begin every few milliseconds, in batches, alone and in transactions
// of the host, some as nodes did that do not know the slots: each is stored once.
func TestIDsWhileSlotsTurn(t *testing.T) {
	const publishers, rounds, ids = 8, 8, 6
	s := slotsOf(t)
	config := pool(t).Config()
	config.MaxConns = 24
	p, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	option := postgres.InSchema(s.schema)
	ctx, stop := context.WithCancel(t.Context())
	began := time.Now()
	var turning, publishing sync.WaitGroup
	turning.Go(func() {
		for ctx.Err() == nil {
			err := s.TurnSlots(t.Context(), time.Millisecond)
			if err == nil && rand.IntN(10) == 0 {
				err = s.DropSlots(t.Context())
			}
			if err != nil {
				t.Error(err)
				return
			}
			time.Sleep(time.Duration(rand.IntN(15)) * time.Millisecond)
		}
	})
	levels := []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}
	for round := range rounds {
		node := openOn(t, p, option)
		name := func(i int) string { return fmt.Sprintf("evt_%d_%d", round, i) }
		for range publishers {
			publishing.Go(func() {
				for _, i := range rand.Perm(ids) {
					id := name(i)
					for stored := false; !stored; {
						how := rand.IntN(4)
						var err error
						switch how {
						case 0, 1:
							_, err = node.Enqueue(t.Context(), event(id))
						default:
							err = pgx.BeginTxFunc(t.Context(), p, pgx.TxOptions{IsoLevel: levels[rand.IntN(3)]}, func(tx pgx.Tx) error {
								if rand.IntN(2) == 0 {
									if _, err := tx.Exec(t.Context(), `select count(*) from pg_class`); err != nil {
										return err
									}
									time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
								}
								_, err := node.EnqueueTx(t.Context(), tx, event(id))
								if err == nil && rand.IntN(3) == 0 {
									time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
									err = errUndone
								}
								return err
							})
						}
						var answer *pgconn.PgError
						switch {
						case err == nil:
							stored = true
						case errors.Is(err, errUndone):
						case how > 1 && errors.As(err, &answer) && (answer.Code == "40001" || answer.Code == "40P01"):
						default:
							t.Errorf("%d: %v", how, err)
							return
						}
					}
				}
			})
		}
		publishing.Wait()
		if err := node.Close(); err != nil {
			t.Fatal(err)
		}
		for i := range ids {
			s.want(1, name(i))
		}
		s.mark()
		t.Logf("%d: %v %d slots", round, time.Since(began), s.current())
		if t.Failed() {
			break
		}
	}
	stop()
	turning.Wait()
	t.Logf("%d slots", s.current())
	if s.current() < 5 {
		t.Errorf("there were %d slots", s.current())
	}
}

var errUndone = errors.New("undone")
