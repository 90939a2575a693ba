package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/storetest"
	"github.com/storageapi/storageapi/webhooks"
)

func newWebhook(account, id string) driver.Webhook {
	return driver.Webhook{
		ID: id, Account: account, URL: "https://example.com/" + id, Events: []driver.EventType{alerts.TypeBalanceLow},
		WebhookHealth: driver.WebhookHealth{Active: true}, Secret: signing.NewSecret(), CreatedAt: time.Now(),
	}
}

func lowBalance(account, id string) webhooks.Event {
	return webhooks.Event{ID: id, Account: account, Data: alerts.BalanceLow{Balance: 1, Threshold: 2}}
}

// statements counts the statements that were started.
type statements struct{ n int }

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.n++
	return ctx
}
func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func TestPublishTx(t *testing.T) {
	config := pool(t).Config()
	counted := &statements{}
	config.ConnConfig.Tracer = counted
	p, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	option := inSchema(t)
	s := open(t, option)
	service, err := webhooks.New(s, webhooks.Config{Events: alerts.Events()})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b"} {
		if err := s.CreateWebhook(t.Context(), newWebhook("acct", id), driver.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	undo := errors.New("undone")
	publish := func(id string, end error) {
		t.Helper()
		err := pgx.BeginFunc(t.Context(), p, func(tx pgx.Tx) error {
			before := counted.n
			if err := s.PublishTx(t.Context(), tx, service, lowBalance("acct", id)); err != nil {
				t.Fatal(err)
			}
			if n := counted.n - before; n != 1 {
				t.Errorf("PublishTx took %d statements, want 1", n)
			}
			if _, err := s.EventDeliveries(t.Context(), "acct", id); !errors.Is(err, apierr.ErrNotFound) {
				t.Errorf("EventDeliveries before the commit = %v, want ErrNotFound", err)
			}
			return end
		})
		if !errors.Is(err, end) {
			t.Fatal(err)
		}
	}
	publish("kept", nil)
	publish("undone", undo)
	tasks, err := storetest.WorkerOf(s).Claim(t.Context(), 9)
	if err != nil || len(tasks) != 2 || tasks[0].Event.ID != "kept" {
		t.Errorf("Claim = %d tasks, %v, want those of the event that was committed", len(tasks), err)
	}
	if _, err := s.EventDeliveries(t.Context(), "acct", "undone"); !errors.Is(err, apierr.ErrNotFound) {
		t.Errorf("EventDeliveries of what was undone = %v, want ErrNotFound", err)
	}

	var invalid *apierr.ValidationError
	if err := s.PublishTx(t.Context(), nil, service, webhooks.Event{Account: "acct"}); !errors.As(err, &invalid) {
		t.Errorf("PublishTx of an event without Data = %v, want a ValidationError", err)
	}
}

// A repeated ID returns no row, and then reads the rows of the first event.
func TestPublishSQLTx_SameIDAgain_IsStoredOnce(t *testing.T) {
	p, option := pool(t), inSchema(t)
	s := open(t, option)
	service, err := webhooks.New(s, webhooks.Config{Events: alerts.Events()})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.CreateWebhook(t.Context(), newWebhook("acct", "a"), driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	db := stdlib.OpenDBFromPool(p)
	defer db.Close()
	for range 2 {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := s.PublishSQLTx(t.Context(), tx, service, lowBalance("acct", "once")); err != nil {
				t.Fatal(err)
			}
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	tasks, err := storetest.WorkerOf(s).Claim(t.Context(), 9)
	if err != nil || len(tasks) != 1 || tasks[0].Event.ID != "once" {
		t.Errorf("Claim = %d tasks, %v, want one of the event", len(tasks), err)
	}
}

// An event published while the clock is set back does not get an earlier time than the events
// before it.
func TestClock_SetBack_EventTimesDoNotDecrease(t *testing.T) {
	name, option := migratedSchema(t)
	s := open(t, option)
	if err := s.CreateWebhook(t.Context(), newWebhook("acct", "a"), driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	enqueue := func(id string) driver.Delivery {
		t.Helper()
		if _, err := s.Enqueue(t.Context(), driver.EncodedEvent{ID: id, Account: "acct", Type: alerts.TypeBalanceLow}); err != nil {
			t.Fatal(err)
		}
		list, err := s.EventDeliveries(t.Context(), "acct", id)
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		return list[0]
	}
	first := enqueue("first")
	const hour = 3600 * 1_000_000 * 4096
	for _, table := range []string{"event_log", "event_ids", "pending"} { // as if the event had been published an hour from now
		if _, err := pool(t).Exec(t.Context(), `update `+quoted(name)+`.`+table+` set event = event + $1`, int64(hour)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pool(t).Exec(t.Context(), `select setval($1::text::regclass, last_value + $2) from `+quoted(name)+`.event_clock`, quoted(name)+".event_clock", int64(hour/4096)); err != nil {
		t.Fatal(err)
	}
	last := first.PublishedAt.Add(time.Hour)
	for _, id := range []string{"second", "third"} {
		next := enqueue(id).PublishedAt
		if next.Before(last) {
			t.Errorf("%s was published at %v, before %v", id, next, last)
		}
		last = next
	}
	page, err := s.ListDeliveries(t.Context(), "acct", "a", driver.DeliveryQuery{Limit: 9})
	var ids []string
	for _, d := range page.Deliveries {
		ids = append(ids, d.EventID)
	}
	if got := strings.Join(ids, " "); err != nil || got != "third second first" {
		t.Errorf("ListDeliveries = %s, %v", got, err)
	}
}

// A listening node reports events of other nodes at once.
func TestDeliver_AnotherNodePublishes_IsNotified(t *testing.T) {
	option := inSchema(t)
	a, b := open(t, option, postgres.PollEvery(time.Hour)), open(t, option)
	if err := b.CreateWebhook(t.Context(), newWebhook("acct", "a"), driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	claimed(t, a)
	eventually(t, "the node listens", a.Listening)
	if _, err := b.Enqueue(t.Context(), driver.EncodedEvent{ID: "event", Account: "acct", Type: alerts.TypeBalanceLow}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if tasks, err := storetest.WorkerOf(a).Await(ctx, 1); err != nil || len(tasks) != 1 {
		t.Errorf("%d tasks, %v after another node published; want 1", len(tasks), err)
	}
}

// Events published in a transaction of the host are delivered at once if the host calls Published
// on any node after the commit.
func TestPublished(t *testing.T) {
	option := inSchema(t)
	owner, other := open(t, option, postgres.PollEvery(time.Hour)), open(t, option)
	if err := owner.CreateWebhook(t.Context(), newWebhook("acct", "a"), driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	claimed(t, owner)
	eventually(t, "the owner listens", owner.Listening)
	for name, s := range map[string]*postgres.Store{"another": other, "the owner": owner} {
		if err := pgx.BeginFunc(t.Context(), pool(t), func(tx pgx.Tx) error {
			_, err := s.EnqueueTx(t.Context(), tx, driver.EncodedEvent{ID: name, Account: "acct", Type: alerts.TypeBalanceLow})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		s.Published("acct")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		tasks, err := storetest.WorkerOf(owner).Await(ctx, 9)
		cancel()
		if err != nil || len(tasks) != 1 || tasks[0].Event.ID != name {
			t.Fatalf("the owner claims %d deliveries of what %s has published, %v; want 1", len(tasks), name, err)
		}
	}
}
