package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
)

// Many callers publish an event id that an uncommitted transaction of the host has published. Only
// these callers may wait for the transaction.
func TestPublish_IDInUncommittedTransaction_OnlyItsCallersWait(t *testing.T) {
	for _, together := range []bool{false, true} {
		t.Run(fmt.Sprintf("together=%v", together), func(t *testing.T) { publishHeld(t, together) })
	}
}

func publishHeld(t *testing.T, together bool) {
	const connections, held = 6, 12
	option := inSchema(t)
	config := pool(t).Config()
	config.MaxConns = connections
	p, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	s, err := postgres.New(t.Context(), p, option)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if err := s.CreateWebhook(t.Context(), newWebhook("acct", "wh"), driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	enqueue := func(ctx context.Context, id string) (int, error) {
		return s.Enqueue(ctx, driver.EncodedEvent{ID: id, Account: "acct", Type: alerts.TypeBalanceLow})
	}
	tx, err := pool(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	for i := range held {
		if _, err := s.EnqueueTx(t.Context(), tx, driver.EncodedEvent{ID: fmt.Sprint("held_", i), Account: "acct", Type: alerts.TypeBalanceLow}); err != nil {
			t.Fatal(err)
		}
	}
	waiting, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var group sync.WaitGroup
	for i := range held {
		group.Go(func() {
			if n, err := enqueue(waiting, fmt.Sprint("held_", i)); n != 1 || err != nil {
				t.Errorf("Enqueue of what is held = %d, %v; want 1 once that is committed", n, err)
			}
		})
		if !together {
			time.Sleep(10 * time.Millisecond)
		}
	}
	time.Sleep(50 * time.Millisecond)
	var longest time.Duration
	for i := range 20 {
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		if _, err := enqueue(ctx, fmt.Sprint("free_", i)); err != nil {
			t.Errorf("Enqueue of another = %v after %v", err, time.Since(begun))
		}
		cancel()
		longest = max(longest, time.Since(begun))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := s.WebhookByID(ctx, "acct", "wh"); err != nil {
		t.Errorf("WebhookByID = %v", err)
	}
	given, giveUp := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer giveUp()
	begun := time.Now()
	if _, err := enqueue(given, "held_0"); err == nil || time.Since(begun) > 5*time.Second {
		t.Errorf("Enqueue of what is held = %v after %v, want an error soon after the deadline", err, time.Since(begun))
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	begun = time.Now()
	group.Wait()
	t.Logf("another took %v at most; those held had their answer %v after the commit", longest, time.Since(begun))
}
