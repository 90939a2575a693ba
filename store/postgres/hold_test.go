package postgres_test

import (
	"testing"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/storetest"
	"github.com/storageapi/storageapi/webhooks"
)

// After HoldAll no node claims anything until the webhooks are released, including nodes that are
// already running.
func TestHoldAll(t *testing.T) {
	const many = 1500 // more than one step of HoldAll
	name, option := migratedSchema(t)
	s := open(t, option)
	defer func() { _ = s.Close() }()
	if _, err := pool(t).Exec(t.Context(), `
		insert into `+quoted(name)+`.webhooks (account, id, url, events, active, off_reason, secret, created_at)
			select 'many', 'many_' || i, 'https://example.com', '{balance.low}', true, '', '', now() from generate_series(1, $1::integer) i`, many); err != nil {
		t.Fatal(err)
	}
	endpoints(t, s, 2)
	publish := func(id string) {
		t.Helper()
		event := driver.EncodedEvent{ID: id, Account: "acct_wh_000000", Type: alerts.TypeBalanceLow}
		if n, err := s.Enqueue(t.Context(), event); n != 1 || err != nil {
			t.Fatalf("Enqueue = %d, %v", n, err)
		}
	}
	publish("before")
	for i, want := range []int{many + 2, 0} {
		if held, err := postgres.HoldAll(t.Context(), pool(t), option); err != nil || held != want {
			t.Fatalf("HoldAll, %d = %d, %v; want %d", i, held, err, want)
		}
	}
	publish("after")
	if tasks, err := storetest.WorkerOf(s).Claim(t.Context(), 9); err != nil || len(tasks) != 0 {
		t.Fatalf("claimed %d, %v", len(tasks), err)
	}
	if backlog, err := storetest.WorkerOf(s).Backlog(t.Context(), ""); err != nil || backlog.Held != many+2 || backlog.Pending != 2 {
		t.Errorf("Backlog = %+v, %v", backlog, err)
	}
	service, err := webhooks.New(s, webhooks.Config{Events: alerts.Events()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := service.Release(t.Context(), "acct_wh_000000", "wh_000000"); err != nil {
		t.Fatal(err)
	}
	var claimed int
	for end := time.Now().Add(time.Minute); claimed < 2 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		tasks, err := storetest.WorkerOf(s).Claim(t.Context(), 9)
		if err != nil {
			t.Fatal(err)
		}
		claimed += len(tasks)
	}
	if claimed != 2 {
		t.Errorf("claimed %d of 2 once it was released", claimed)
	}
}
