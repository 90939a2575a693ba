package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/webhooks"
)

func encoded(id string) driver.EncodedEvent {
	return driver.EncodedEvent{ID: id, Account: "acct", Type: alerts.TypeBalanceLow}
}

// follow returns the ids of the next page, and advances the query past the page.
func follow(t *testing.T, s *postgres.Store, query *driver.EventQuery) (ids []string, more bool) {
	t.Helper()
	page, err := s.ListEvents(t.Context(), "acct", *query)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range page.Events {
		ids = append(ids, e.ID)
	}
	query.After = page.Resume
	return ids, page.Next != ""
}

// wantPage checks the next page and whether more follow, and advances the query past the page.
func wantPage(t *testing.T, s *postgres.Store, query *driver.EventQuery, wantMore bool, want ...string) {
	t.Helper()
	if got, more := follow(t, s, query); !cmp.Equal(got, want) || more != wantMore {
		t.Errorf("a page of %q, more %v, want %q, %v", got, more, want, wantMore)
	}
}

func enqueueOne(t *testing.T, s *postgres.Store, id string) {
	t.Helper()
	if _, err := s.Enqueue(t.Context(), encoded(id)); err != nil {
		t.Fatal(err)
	}
}

// The test commits transactions of the host after later events have been stored. Clients that
// follow the list must get each event once, and all clients in the same order.
func TestFollow_OpenTransactions_GetsEachEventOnce(t *testing.T) {
	s := open(t, inSchema(t))
	const hosts, each = 6, 25
	var group sync.WaitGroup
	for h := range hosts {
		group.Go(func() {
			for i := range each {
				e := encoded(fmt.Sprintf("event-%d-%d", h, i))
				if h%2 == 0 {
					if _, err := s.Enqueue(t.Context(), e); err != nil {
						t.Error(err)
					}
					continue
				}
				err := pgx.BeginFunc(t.Context(), pool(t), func(tx pgx.Tx) error {
					_, err := s.EnqueueTx(t.Context(), tx, e)
					time.Sleep(rand.N(10 * time.Millisecond)) // the host does other work
					return err
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	ended := make(chan struct{})
	go func() { group.Wait(); close(ended) }()
	query := driver.EventQuery{OldestFirst: true, Limit: 5}
	seen := make(map[string]int)
	var followed []string
	for last := false; ; {
		ids, more := follow(t, s, &query)
		followed = append(followed, ids...)
		for _, id := range ids {
			if seen[id]++; seen[id] > 1 {
				t.Errorf("%s is listed twice", id)
			}
		}
		if more {
			continue
		}
		if last {
			break
		}
		select {
		case <-ended:
			last = true
		default:
		}
	}
	if len(seen) != hosts*each {
		t.Errorf("%d events are listed, want %d", len(seen), hosts*each)
	}
	again, _ := follow(t, s, &driver.EventQuery{OldestFirst: true, Limit: 1000})
	if diff := cmp.Diff(again, followed); diff != "" {
		t.Errorf("the list is not what was followed (-list +followed):\n%s", diff)
	}
}

// The test keeps a transaction open. A page must end before the transaction's event and report that
// more events follow.
func TestFollow_OpenTransaction_StopsBeforeItsEvents(t *testing.T) {
	s := open(t, inSchema(t))
	enqueueOne(t, s, "before")
	tx, err := pool(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := s.EnqueueTx(t.Context(), tx, encoded("late")); err != nil {
		t.Fatal(err)
	}
	query := driver.EventQuery{OldestFirst: true, Limit: 9}
	wantPage(t, s, &query, false, "before") // no other event is stored yet
	enqueueOne(t, s, "after")
	wantPage(t, s, &query, true)
	wantPage(t, s, &driver.EventQuery{OldestFirst: true, Limit: 1}, true, "before")
	newest := driver.EventQuery{Limit: 9} // the open transaction does not delay it
	wantPage(t, s, &newest, false, "after", "before")
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantPage(t, s, &query, false, "late", "after")
	wantPage(t, s, &query, false)
}

func TestWaitEvents_AnotherNodePublishes_ReturnsItsEvent(t *testing.T) {
	option := inSchema(t)
	var nodes [2]*webhooks.WebhookService
	for i := range nodes {
		service, err := webhooks.New(open(t, option), webhooks.Config{Events: alerts.Events()})
		if err != nil {
			t.Fatal(err)
		}
		nodes[i] = service
	}
	query := driver.EventQuery{OldestFirst: true, Limit: 9}
	before, err := nodes[0].ListEvents(t.Context(), "acct", query)
	if err != nil {
		t.Fatal(err)
	}
	query.After = before.Resume
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	pages := make(chan driver.EventPage)
	go func() {
		page, err := nodes[0].WaitEvents(ctx, "acct", query)
		if err != nil {
			t.Error(err)
		}
		pages <- page
	}()
	if err := nodes[1].Publish(t.Context(), lowBalance("acct", "evt_1")); err != nil {
		t.Fatal(err)
	}
	if page := <-pages; len(page.Events) != 1 || page.Events[0].ID != "evt_1" {
		t.Errorf("got %+v, want evt_1", page)
	}
}

// The test publishes in an open transaction of a role whose sessions the Store's role may not see.
// To be safe, the list must stay empty until the transaction ends.
func TestFollow_TransactionOfHiddenRole_WaitsForIt(t *testing.T) {
	p, role := newRole(t, `create schema storageapi authorization {}`)
	if err := postgres.Migrate(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	s, err := postgres.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	enqueueOne(t, s, "before")
	config := pool(t).Config().ConnConfig
	config.Database = role
	other, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close(context.Background()) }()
	tx, err := other.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.EnqueueTx(t.Context(), tx, encoded("late")); err != nil {
		t.Fatal(err)
	}
	query := driver.EventQuery{OldestFirst: true, Limit: 9}
	wantPage(t, s, &query, true)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantPage(t, s, &query, false, "before", "late")
}

// The test publishes and follows while the database's clock is an hour behind the latest event.
func TestFollow_ClockBehindLatestEvent_MissesNothing(t *testing.T) {
	name, option := migratedSchema(t)
	s := open(t, option)
	query := driver.EventQuery{OldestFirst: true, From: time.Now().Add(-time.Minute), Limit: 9}
	enqueueOne(t, s, "first")
	const hour = 3600 * 1_000_000 * 4096
	if _, err := pool(t).Exec(t.Context(), `update `+quoted(name)+`.event_log set event = event + $1`, int64(hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := pool(t).Exec(t.Context(), `select setval($1::text::regclass, last_value + $2) from `+quoted(name)+`.event_clock`, quoted(name)+".event_clock", int64(hour/4096)); err != nil {
		t.Fatal(err)
	}
	wantPage(t, s, &query, false, "first")
	wantPage(t, s, &query, false)
	enqueueOne(t, s, "second")
	enqueueOne(t, s, "third")
	wantPage(t, s, &query, false, "second", "third")
	enqueueOne(t, s, "fourth")
	wantPage(t, s, &query, false, "fourth")
}

// The test sets the database's clock back, after a page was read, to a time before all events. An
// event published then gets a number lower than the position of that page.
func TestFollow_ClockSetBackBetweenPages_MissesNothing(t *testing.T) {
	name, option := migratedSchema(t)
	s := open(t, option)
	query := driver.EventQuery{OldestFirst: true, Limit: 9}
	enqueueOne(t, s, "first")
	wantPage(t, s, &query, false, "first")
	wantPage(t, s, &query, false)
	enqueueOne(t, s, "second")
	events := quoted(name) + ".event_log"
	if _, err := pool(t).Exec(t.Context(), `update `+events+` set event = (select event / 4096 + 1 from `+events+` where id = 'first') * 4096 where id = 'second'`); err != nil {
		t.Fatal(err)
	}
	if _, err := pool(t).Exec(t.Context(), `select setval($1::text::regclass, (select max(event) / 4096 from `+events+`))`, quoted(name)+".event_clock"); err != nil {
		t.Fatal(err)
	}
	wantPage(t, s, &query, false, "second")
	wantPage(t, s, &query, false)
	// Of two events published at the same time, the earlier one may have set the event clock
	// last.
	enqueueOne(t, s, "third")
	if _, err := pool(t).Exec(t.Context(), `select setval($1::text::regclass, last_value - 9) from `+quoted(name)+`.event_clock`, quoted(name)+".event_clock"); err != nil {
		t.Fatal(err)
	}
	wantPage(t, s, &query, false, "third")
	wantPage(t, s, &query, false)
}

// The test publishes in a transaction that stays open while the clock is set back, so that the
// event's number is lower than the start of the transaction.
func TestFollow_ClockSetBackDuringTransaction_MissesNothing(t *testing.T) {
	s := newAheadStore(t)
	query := driver.EventQuery{OldestFirst: true, Limit: 9}
	s.publish("first", 1)
	s.ahead(-30 * time.Minute)
	tx, err := s.pool.Begin(t.Context())
	s.must(err)
	_, err = s.EnqueueTx(t.Context(), tx, encoded("late"))
	s.must(err)
	s.publish("after", 1)
	got, _ := follow(t, s.Store, &query)
	s.must(tx.Commit(t.Context()))
	for more := true; more; {
		var ids []string
		ids, more = follow(t, s.Store, &query)
		got = append(got, ids...)
	}
	if want := []string{"first0", "late", "after0"}; !cmp.Equal(got, want) {
		t.Errorf("the pages have %q, want %q", got, want)
	}
}

// The test publishes in an open transaction whose start time the server does not report. To be
// safe, the list must stay empty until the transaction ends.
func TestFollow_UntrackedTransaction_WaitsForIt(t *testing.T) {
	s := open(t, inSchema(t))
	tx, err := pool(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `set local track_activities = off`); err != nil {
		t.Fatal(err)
	}
	if _, err := s.EnqueueTx(t.Context(), tx, encoded("late")); err != nil {
		t.Fatal(err)
	}
	enqueueOne(t, s, "after")
	query := driver.EventQuery{OldestFirst: true, Limit: 9}
	wantPage(t, s, &query, true)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantPage(t, s, &query, false, "late", "after")
}

// The test uses a cursor of one store in another store. The list must start from the beginning.
func TestFollow_CursorOfAnotherStore_StartsOver(t *testing.T) {
	source, target := open(t, inSchema(t)), open(t, inSchema(t))
	for _, s := range []*postgres.Store{target, source} {
		enqueueOne(t, s, "event")
	}
	query := driver.EventQuery{OldestFirst: true, Limit: 9}
	for _, s := range []*postgres.Store{source, target} {
		wantPage(t, s, &query, false, "event")
	}
}
